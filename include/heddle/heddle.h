// Heddle: builds, compiles and executes multidimensional compute graphs on CPUs and NVIDIA GPUs.
#pragma once

#include <heddle/array.h>
#include <heddle/device.h>
#include <heddle/dtype.h>
#include <heddle/error.h>
#include <heddle/expr.h>
#include <heddle/graph.h>
#include <heddle/ops.h>
#include <heddle/tensor.h>
#include <heddle/type.h>
