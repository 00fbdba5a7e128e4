// The functions behind programs().
#pragma once

#include "programs.h"

namespace heddle::test {

ProgramResult softmax_classifier(ProgramBuilder& b);
ProgramResult mlp_classifier(ProgramBuilder& b);
ProgramResult tanh_rnn(ProgramBuilder& b);
ProgramResult lstm(ProgramBuilder& b);
ProgramResult transformer_block(ProgramBuilder& b);
ProgramResult heat_equation(ProgramBuilder& b);
ProgramResult k_means(ProgramBuilder& b);
ProgramResult picture_filter(ProgramBuilder& b);
ProgramResult conjugate_gradients(ProgramBuilder& b);
ProgramResult multigrid(ProgramBuilder& b);

}  // namespace heddle::test
