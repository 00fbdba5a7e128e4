// One run of an executable: checks, staging, execution.
#include "base/check.h"
#include "ops/judge.h"
#include "runtime/executable.h"
#include "runtime/host_device.h"
#include "runtime/host_stream.h"
#include "runtime/storage.h"
#include "runtime/strided_copy.h"
#include "target/counters.h"

#include <heddle/error.h>

#include <algorithm>
#include <array>

namespace heddle::runtime {

namespace {

using plan::Layout;
using plan::Plan;

std::string show(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t k = 0; k < shape.size(); ++k) text += base::cat(k > 0 ? "," : "", shape[k]);
  return text + "]";
}

std::string show(const Array& a) { return base::cat(name(a.dtype()), show(a.shape())); }

// dtype and rank of each feed, then the symbols of the extents.
std::vector<int64_t> check_inputs(const Plan& plan, const std::vector<Array>& inputs) {
  if (inputs.size() != plan.inputs.size()) {
    throw GraphError(
        base::cat("run: ", plan.inputs.size(), " feeds expected, given ", inputs.size()));
  }
  std::vector<std::vector<int64_t>> shapes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Array& a = inputs[i];
    const Type& expected = plan.inputs[i].type;
    auto refuse = [&](const std::string& what) {
      throw GraphError(base::cat("run: ", plan::feed_name(plan, i), ": ", what, ", expected ",
                                 plan::input_type(plan, i)));
    };
    if (!a.valid()) refuse("the array holds no data");
    if (a.dtype() != expected.dtype) refuse(base::cat("dtype is ", name(a.dtype())));
    if (a.rank() != expected.rank()) refuse(base::cat("rank of ", show(a), " is ", a.rank()));
    shapes.push_back(a.shape());
  }
  return plan::bind_symbols(plan, shapes);
}

// Nothing to complain of in feeds of these sizes.
bool have_shapes(const Plan& plan, const Layout& layout, const std::vector<Array>& inputs) {
  if (inputs.size() != plan.inputs.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Array& a = inputs[i];
    if (!a.valid() || a.dtype() != plan.inputs[i].type.dtype || a.shape() != layout.input_shapes[i])
      return false;
  }
  return true;
}

ByteRange range_of(const Array& a) {
  ByteExtent extent = byte_extent(a.dtype(), a.shape(), a.strides());
  const std::byte* data = address(a);
  return {data + extent.begin, data + extent.end};
}

// The memory of a feed or an output, in the order of addresses.
struct Span {
  ByteRange range;
  size_t index = 0;
  bool output = false;
  bool operator<(const Span& o) const { return range.begin < o.range.begin; }
};

// Empty, with the room of the runs before: a warm run allocates nothing.
std::vector<Span>& scratch_spans() {
  thread_local std::vector<Span> spans;
  spans.clear();
  return spans;
}

void add_spans(const std::vector<Array>& arrays, bool outputs, std::vector<Span>& spans) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].size() > 0) spans.push_back({range_of(arrays[i]), i, outputs});
  }
}

// Calls `found` with the number of each output that shares memory with a feed or another output.
template <class Found>
void for_shared_outputs(std::vector<Span>& spans, const Found& found) {
  std::sort(spans.begin(), spans.end());
  const std::byte* end = nullptr;  // of all before
  for (size_t k = 0; k < spans.size(); ++k) {
    const ByteRange& range = spans[k].range;
    bool before = k > 0 && range.begin < end;
    bool after = k + 1 < spans.size() && spans[k + 1].range.begin < range.end;
    if (spans[k].output && (before || after)) found(spans[k].index);
    end = k > 0 ? std::max(end, range.end) : range.end;
  }
}

// Two outputs that share memory, the lower number first. Interleaved views of one storage may be
// disjoint, but two from one address on are a mistake.
std::optional<std::pair<size_t, size_t>> overlapping_outputs(const std::vector<Array>& outputs) {
  std::vector<Span>& spans = scratch_spans();
  add_spans(outputs, true, spans);
  auto pair = [](const Span& a, const Span& b) { return std::minmax(a.index, b.index); };
  auto data = [&](const Span& s) {
    return static_cast<const std::byte*>(address(outputs[s.index]));
  };
  auto storage = [&](const Span& s) { return outputs[s.index].storage().get(); };

  std::sort(spans.begin(), spans.end(),
            [&](const Span& a, const Span& b) { return data(a) < data(b); });
  for (size_t k = 1; k < spans.size(); ++k) {
    if (data(spans[k - 1]) == data(spans[k])) return pair(spans[k - 1], spans[k]);
  }

  std::sort(spans.begin(), spans.end());
  // What reaches farthest of all before, and what does of all that lie in another storage than it.
  const Span *farthest = nullptr, *other = nullptr;
  for (const Span& s : spans) {
    bool same = farthest != nullptr && storage(*farthest) == storage(s);
    const Span* before = same ? other : farthest;
    if (before != nullptr && before->range.meets(s.range)) return pair(*before, s);
    if (farthest == nullptr || s.range.end > farthest->range.end) {
      if (!same) other = farthest;
      farthest = &s;
    } else if (!same && (other == nullptr || s.range.end > other->range.end)) {
      other = &s;
    }
  }
  return std::nullopt;
}

bool same_memory(const target::Device& a, const target::Device& b) {
  return &a == &b || (a.host_memory() && b.host_memory());
}

// Kernels rely on the alignment of the element (of its parts, for complex numbers). Masks by dtype.
const std::array<uint8_t, kDTypeCount> kAlignmentMasks = [] {
  std::array<uint8_t, kDTypeCount> masks{};
  for (int d = 1; d < kDTypeCount; ++d) {
    masks[static_cast<size_t>(d)] =
        static_cast<uint8_t>(std::max(bit_width(real_part(static_cast<DType>(d))) / 8, 1) - 1);
  }
  return masks;
}();

bool aligned(const Array& a) {
  return (reinterpret_cast<uintptr_t>(address(a)) &
          kAlignmentMasks[static_cast<size_t>(a.dtype())]) == 0;
}

bool usable(const Array& a, const target::Device& device) {
  return same_memory(*a.storage()->device, device) && is_packed(a.shape(), a.strides()) &&
         aligned(a);
}

void attach(const Executable::Impl& impl, plan::Instance& instance, target::Stream& stream) {
  try {
    instance.attach(&stream);
  } catch (const DeviceError&) {
    impl.context->trim();  // what idle runs and free blocks hold may be enough
    instance.attach(&stream);
  }
}

void count_launches(const Plan& plan) {
  target::runtime_counters().launches.fetch_add(static_cast<uint64_t>(plan.kernel_steps),
                                                std::memory_order_relaxed);
}

}  // namespace

Run::Run(std::shared_ptr<const Executable::Impl> impl, std::vector<Array> inputs,
         std::vector<Array> outputs)
    : impl_(std::move(impl)), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  const Plan& plan = *impl_->plan;
  if (impl_->fixed && have_shapes(plan, *impl_->fixed, inputs_)) {
    layout_ = impl_->fixed;
  } else {
    std::vector<int64_t> symbols = check_inputs(plan, inputs_);
    layout_ = impl_->fixed ? impl_->fixed : impl_->layouts.get(plan, symbols);
  }
  if (outputs_.empty() && !plan.outputs.empty()) {
    Device device(impl_->device);
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      outputs_.push_back(
          Array::empty(plan.outputs[i].type.dtype, layout_->output_shapes[i], device));
    }
  } else {
    check_outputs();
  }
  decide_staging();
}

Run::~Run() {
  if (instance_ == nullptr && !entered_) return;
  try {
    finish();
  } catch (...) {  // the run has failed before and said so; nobody is left to tell
  }
}

void Run::check_outputs() {
  const Plan& plan = *impl_->plan;
  if (outputs_.size() != plan.outputs.size()) {
    throw GraphError(
        base::cat("run: ", plan.outputs.size(), " outputs expected, given ", outputs_.size()));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Array& a = outputs_[i];
    auto expected = [&] {
      return base::cat(name(plan.outputs[i].type.dtype), show(layout_->output_shapes[i]));
    };
    if (!a.valid())
      throw GraphError(
          base::cat("run: output ", i, ": the array holds no memory, expected ", expected()));
    if (a.dtype() != plan.outputs[i].type.dtype || a.shape() != layout_->output_shapes[i]) {
      throw GraphError(
          base::cat("run: output ", i, ": given ", show(a), ", expected ", expected()));
    }
    for (size_t k = 0; k < a.shape().size(); ++k) {
      if (a.size() > 0 && a.strides()[k] == 0 && a.shape()[k] > 1) {
        throw GraphError(base::cat("run: output ", i, ": axis ", k,
                                   " has stride 0, so its elements share memory"));
      }
    }
  }
  if (auto clash = overlapping_outputs(outputs_)) {
    throw GraphError(
        base::cat("run: outputs ", clash->first, " and ", clash->second, " overlap in memory"));
  }
}

// Outputs that are strided, elsewhere, or overlap a feed go through packed memory. (Feeds are
// packed when the run starts: work that is still queued may write them.)
void Run::decide_staging() {
  staged_inputs_.resize(inputs_.size());
  staged_outputs_.resize(outputs_.size());
  if (impl_->judged) return;
  auto stage = [&](size_t i) {
    const Array& out = outputs_[i];
    if (!staged_outputs_[i].valid())
      staged_outputs_[i] = Array::empty(out.dtype(), out.shape(), Device(impl_->device));
  };
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!usable(outputs_[i], *impl_->device)) stage(i);
  }
  std::vector<Span>& spans = scratch_spans();
  add_spans(inputs_, false, spans);
  add_spans(outputs_, true, spans);
  for_shared_outputs(spans, stage);
}

bool Run::alone() const {
  if (impl_->judged || impl_->state || impl_->validate) return true;
  for (const Array& in : inputs_) {
    if (!usable(in, *impl_->device)) return true;
  }
  for (const Array& out : staged_outputs_) {
    if (out.valid()) return true;
  }
  const std::vector<plan::Step>& steps = impl_->plan->steps;
  return std::any_of(steps.begin(), steps.end(), [](const plan::Step& s) {
    return s.kind == plan::StepKind::cond || s.kind == plan::StepKind::while_loop ||
           s.kind == plan::StepKind::for_loop;
  });
}

int64_t Run::ahead_bytes(const target::Stream& stream) const {
  bool has = layout_->arena_bytes == 0 || impl_->instances.in_flight(*layout_, stream);
  return has ? 0 : layout_->arena_bytes;
}

int64_t Run::held_bytes() const {
  int64_t bytes = layout_->arena_bytes;
  for (const auto* arrays : {&inputs_, &outputs_}) {
    for (const Array& a : *arrays) bytes += a.storage()->bytes;
  }
  return bytes;
}

void Run::wait_for_writers() const {
  for (const Array& in : inputs_) in.wait();
  for (const Array& out : outputs_) {
    try {
      out.wait();
    } catch (const std::exception&) {  // of what is written over now
    }
  }
}

void Run::wrote() const {
  for (const Array& out : outputs_) {
    if (out.storage()->pending.any()) out.storage()->pending.overwritten(byte_range(out));
  }
}

std::vector<Predecessor> Run::begin(const CompletionRef& own) const {
  std::vector<Predecessor> before;
  auto follow = [&](const Array& a, bool reads) {
    if (!a.storage()->pending.any()) return;
    for (CompletionRef& run : a.storage()->pending.of(byte_range(a)))
      before.push_back({std::move(run), reads});
  };
  for (const Array& in : inputs_) follow(in, true);
  for (const Array& out : outputs_) follow(out, false);
  for (const Array& out : outputs_) out.storage()->pending.add(byte_range(out), own);
  return before;
}

void Run::start(target::Stream& stream) {
  if (impl_->state) {
    impl_->state->gate().enter(impl_->writes);
    entered_ = true;
  }
  if (impl_->judged) {
    start_judge();
  } else {
    start_plan(stream);
  }
}

void Run::start_judge() {
  std::vector<ops::HostTensor> feeds;
  for (const Array& a : inputs_) feeds.push_back(to_host_tensor(a));
  std::map<int64_t, ops::HostTensor>* variables = impl_->state ? &impl_->state->host() : nullptr;
  std::vector<ops::HostTensor> results = ops::judge(*impl_->reference, feeds, variables);
  for (size_t i = 0; i < results.size(); ++i) from_host_tensor(results[i], outputs_[i]);
}

void Run::take_instance(target::Stream& stream) {
  if (shared_) instance_ = impl_->instances.join(*layout_, stream);
  if (instance_ != nullptr) return;
  own_ = impl_->instances.take(*layout_);
  if (!own_) own_ = std::make_unique<plan::Instance>(*impl_->plan, layout_, impl_->resources);
  instance_ = own_.get();
  attach(*impl_, *own_, stream);
}

// After a failure its state is unknown: work may still use it, so it goes after that, and not back
// to the pool.
void Run::drop_instance(target::Stream& stream) {
  try {
    stream.synchronize();
  } catch (const std::exception&) {  // the first error is the one that is reported
  }
  if (!own_) impl_->instances.land(instance_, true);
  own_.reset();
  instance_ = nullptr;
}

void Run::start_plan(target::Stream& stream) {
  target::Device& device = *impl_->device;
  int64_t copied = 0, copied_bytes = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Array& in = inputs_[i];
    if (usable(in, device)) continue;
    if (same_memory(*in.storage()->device, device)) {
      staged_inputs_[i] = Array::empty(in.dtype(), in.shape(), Device(impl_->device));
      pack_on_device(in, staged_inputs_[i], device, stream);
    } else {
      staged_inputs_[i] = copied_to(in, impl_->device);
      ++copied, copied_bytes += byte_size(in.dtype(), in.size());
    }
  }
  impl_->copied_feeds.store(copied, std::memory_order_relaxed);
  impl_->copied_bytes.store(copied_bytes, std::memory_order_relaxed);
  take_instance(stream);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    instance_->set_input(i, address(staged_inputs_[i].valid() ? staged_inputs_[i] : inputs_[i]));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    instance_->set_output(i,
                          address(staged_outputs_[i].valid() ? staged_outputs_[i] : outputs_[i]));
  }
  stream.limit_threads(impl_->options.threads);
  execute(stream);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (!staged_outputs_[i].valid()) continue;
    if (same_memory(*outputs_[i].storage()->device, device)) {
      pack_on_device(staged_outputs_[i], outputs_[i], device, stream);
    } else {
      stream.synchronize();
      std::vector<std::byte> bytes = packed_bytes(staged_outputs_[i]);
      Array host = Array::from_bytes(outputs_[i].dtype(), outputs_[i].shape(), bytes);
      HD_CHECK(outputs_[i].storage()->device->host_memory(),
               "outputs on another device are not supported");
      strided_copy(host.dtype(), host.shape(), address(outputs_[i]), outputs_[i].strides(),
                   address(host), host.strides());
    }
  }
}

void Run::execute(target::Stream& stream) {
  if (impl_->device->host_memory()) count_launches(*impl_->plan);  // other devices count their own
  try {
    if (impl_->validate) {
      std::vector<Array> packed;
      for (size_t i = 0; i < inputs_.size(); ++i)
        packed.push_back(staged_inputs_[i].valid() ? staged_inputs_[i] : inputs_[i]);
      run_validated(*impl_, *instance_, packed, stream);
    } else {
      instance_->execute(stream);
    }
  } catch (...) {
    drop_instance(stream);
    throw;
  }
  if (shared_ && own_) instance_ = impl_->instances.fly(std::move(own_), stream);
}

void Run::finish() {
  if (own_) {
    impl_->instances.give(std::move(own_));
  } else if (instance_ != nullptr) {
    impl_->instances.land(instance_, false);
  }
  instance_ = nullptr;
  if (entered_) {
    impl_->state->gate().leave(impl_->writes);
    entered_ = false;
  }
}

namespace {

// Packed arrays of this shape in host memory, which no asynchronous run writes.
bool fits(const Array& a, DType dtype, const std::vector<int64_t>& shape) {
  return a.valid() && a.dtype() == dtype && a.shape() == shape &&
         a.storage()->device->host_memory() && is_packed(a.shape(), a.strides()) && aligned(a) &&
         !a.storage()->pending.any();
}

ByteRange packed_range(const Array& a, int64_t bytes) {
  const std::byte* begin = address(a);
  return {begin, begin + bytes};
}

bool inputs_fit(const Plan& plan, const Layout& layout, const std::vector<Array>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!fits(inputs[i], plan.inputs[i].type.dtype, layout.input_shapes[i])) return false;
  }
  return true;
}

// No output shares memory with a feed or another output.
bool outputs_fit(const Plan& plan, const Layout& layout, const std::vector<Array>& inputs,
                 const std::vector<Array>& outputs) {
  std::vector<Span>& spans = scratch_spans();
  auto add = [&](const Array& a, size_t index, uint32_t slot, bool output) {
    if (a.size() > 0) spans.push_back({packed_range(a, layout.bytes[slot]), index, output});
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!fits(outputs[i], plan.outputs[i].type.dtype, layout.output_shapes[i])) return false;
    add(outputs[i], i, plan.outputs[i].slot, true);
  }
  for (size_t k = 0; k < inputs.size(); ++k) add(inputs[k], k, plan.inputs[k].slot, false);
  bool apart = true;
  for_shared_outputs(spans, [&](size_t) { apart = false; });
  return apart;
}

// An idle instance, back in its pool unless the run failed.
class WarmInstance {
 public:
  explicit WarmInstance(const Executable::Impl& impl) : impl_(impl) {
    if (impl.judged || impl.validate || impl.state || !impl.on_host) return;
    instance_ = impl.instances.take_hot();
    if (!instance_ && impl.fixed) instance_ = impl.instances.take(*impl.fixed);
  }
  ~WarmInstance() {
    if (instance_) impl_.instances.give(std::move(instance_));
  }
  WarmInstance(const WarmInstance&) = delete;
  WarmInstance& operator=(const WarmInstance&) = delete;
  explicit operator bool() const { return instance_ != nullptr; }
  const Layout& layout() const { return instance_->layout(); }

  void run(const std::vector<Array>& inputs, const std::vector<Array>& outputs) {
    // Goes with an exception: its state is unknown then.
    std::unique_ptr<plan::Instance> instance = std::move(instance_);
    HostStream stream(false);
    attach(impl_, *instance, stream);
    for (size_t i = 0; i < inputs.size(); ++i) instance->set_input(i, address(inputs[i]));
    for (size_t i = 0; i < outputs.size(); ++i) instance->set_output(i, address(outputs[i]));
    stream.limit_threads(impl_.options.threads);
    count_launches(*impl_.plan);
    instance->execute(stream);
    instance_ = std::move(instance);
  }

 private:
  const Executable::Impl& impl_;
  std::unique_ptr<plan::Instance> instance_;
};

}  // namespace

bool run_fast(const Executable::Impl& impl, const std::vector<Array>& inputs,
              const std::vector<Array>& outputs) {
  const Plan& plan = *impl.plan;
  if (inputs.size() != plan.inputs.size() || outputs.size() != plan.outputs.size()) return false;
  WarmInstance warm(impl);
  if (!warm || !inputs_fit(plan, warm.layout(), inputs) ||
      !outputs_fit(plan, warm.layout(), inputs, outputs)) {
    return false;
  }
  warm.run(inputs, outputs);
  return true;
}

bool run_fast(const Executable::Impl& impl, const std::vector<Array>& inputs,
              std::vector<Array>* fresh) {
  const Plan& plan = *impl.plan;
  if (inputs.size() != plan.inputs.size()) return false;
  WarmInstance warm(impl);
  if (!warm || !inputs_fit(plan, warm.layout(), inputs)) return false;
  const Layout& layout = warm.layout();
  fresh->reserve(plan.outputs.size());
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    fresh->push_back(ArrayAccess::make(
        plan.outputs[i].type.dtype, layout.output_shapes[i], layout.output_strides[i], 0,
        allocate_storage(impl.device, layout.bytes[plan.outputs[i].slot])));
  }
  warm.run(inputs, *fresh);
  return true;
}

ops::HostTensor to_host_tensor(const Array& array) {
  return ops::from_bytes(array.dtype(), array.shape(), packed_bytes(array));
}

void from_host_tensor(const ops::HostTensor& tensor, const Array& to) {
  std::vector<std::byte> bytes = ops::to_bytes(tensor);
  HD_CHECK(tensor.shape == to.shape() && tensor.dtype == to.dtype(),
           "the judge's result has another type than the plan says");
  if (bytes.empty()) return;
  if (!to.storage()->device->host_memory())
    throw UnsupportedError("judge: outputs must be in host memory");
  strided_copy(to.dtype(), to.shape(), address(to), to.strides(), bytes.data(),
               ops::row_major_strides(to.shape()));
}

}  // namespace heddle::runtime
