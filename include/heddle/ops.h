// All operations. Free functions over Tensor; each is documented where it is declared.
#pragma once

#include <heddle/graph.h>
#include <heddle/ops/control.h>
#include <heddle/ops/elementwise.h>
#include <heddle/ops/gradient.h>
#include <heddle/ops/index.h>
#include <heddle/ops/linalg.h>
#include <heddle/ops/nn.h>
#include <heddle/ops/reduce.h>
#include <heddle/ops/shape.h>
#include <heddle/ops/stencil.h>
