/* The C interface: stable in binary form. Operations go by the registry's names ("heddle ops" lists
 * them with their attributes), arrays come and go as DLPack tensors.
 *
 * Functions return 0, or the class of the failure; hd_last_error() then has the sentence (of this
 * thread).
 *
 *   hd_graph* g; hd_tensor x, y; hd_executable* e;
 *   int64_t shape[] = {4};
 *   hd_graph_create(&g);
 *   hd_graph_placeholder(g, "f32", 1, shape, "x", &x);
 *   hd_graph_op(g, "exp", &x, 1, NULL, 0, &y, 1);
 *   hd_graph_compile(g, &x, 1, &y, 1, "cpu", &e);
 *   hd_executable_run(e, &input, 1, &output, 1);        input, output: DLManagedTensor*
 */
#ifndef HEDDLE_C_H
#define HEDDLE_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensor;
typedef struct hd_graph hd_graph;
typedef struct hd_executable hd_executable;
typedef uint32_t hd_tensor; /* a value of one graph */

enum hd_status {
  HD_OK = 0,
  HD_GRAPH_ERROR = 1,       /* invalid graph or feed */
  HD_UNSUPPORTED_ERROR = 2, /* nothing here can run it */
  HD_DEVICE_ERROR = 3,      /* the device failed; out of memory */
  HD_INTERNAL_ERROR = 4     /* please report */
};

const char* hd_version(void);
const char* hd_last_error(void);

int hd_graph_create(hd_graph** graph);
int hd_graph_from_text(const char* text, hd_graph** graph);
/* Writes at most `capacity` bytes, the last one 0; `needed` gets the length with the 0. */
int hd_graph_to_text(const hd_graph* graph, char* text, size_t capacity, size_t* needed);
void hd_graph_destroy(hd_graph* graph);

/* dtype: "f32", "i64", "bool", ...; an extent of -1 is a size that is known only when a run starts.
 */
int hd_graph_placeholder(hd_graph* graph, const char* dtype, int rank, const int64_t* shape,
                         const char* name, hd_tensor* tensor);
/* Copies the data; the tensor is not consumed. */
int hd_graph_constant(hd_graph* graph, struct DLManagedTensor* data, hd_tensor* tensor);
int hd_graph_placeholders(const hd_graph* graph, hd_tensor* tensors, size_t capacity,
                          size_t* count);
/* The value with a user's name; an error where there is none, or several. */
int hd_graph_find(const hd_graph* graph, const char* name, hd_tensor* tensor);

/* A value of an attribute: exactly one of the forms; lists have `count` items. */
typedef struct {
  const char* name;
  const char* text;        /* strings, dtypes */
  const int64_t* integers; /* integers, booleans, extents and lists of them */
  const double* numbers;   /* floats and lists of them */
  size_t count;
} hd_attribute;
int hd_graph_op(hd_graph* graph, const char* op, const hd_tensor* operands, size_t operand_count,
                const hd_attribute* attributes, size_t attribute_count, hd_tensor* results,
                size_t result_count);

/* device: "cpu", "cuda", ...; NULL: the default one. */
int hd_graph_compile(hd_graph* graph, const hd_tensor* feeds, size_t feed_count,
                     const hd_tensor* targets, size_t target_count, const char* device,
                     hd_executable** executable);
void hd_executable_destroy(hd_executable* executable);
/* Inputs are not consumed. Each output is a new tensor whose deleter the caller calls. */
int hd_executable_run(const hd_executable* executable, struct DLManagedTensor* const* inputs,
                      size_t input_count, struct DLManagedTensor** outputs, size_t output_count);

#ifdef __cplusplus
}
#endif
#endif
