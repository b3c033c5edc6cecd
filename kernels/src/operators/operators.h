// The operators, a file each.
#pragma once
#include <vector>

#include "compute/table.h"
#include "ort/operator.h"

namespace dragoman {

const OrtCustomOp* embed_operator();
std::vector<const OrtCustomOp*> linear_operators();
std::vector<const OrtCustomOp*> attention_operators();
const OrtCustomOp* packed_attention_operator();
const OrtCustomOp* recurrence_operator();
const OrtCustomOp* gated_unit_operator();
const OrtCustomOp* additive_attention_operator();
const OrtCustomOp* best_tokens_operator();
const OrtCustomOp* top_tokens_operator();
const OrtCustomOp* named_tokens_operator();

}  // namespace dragoman
