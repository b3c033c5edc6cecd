// All of compute/ for one instruction set.
#include ISA_HEADER

#include "compute/attention.h"
#include "compute/best_tokens.h"
#include "compute/embed.h"
#include "compute/float_linear.h"
#include "compute/linear.h"
#include "compute/norm.h"
#include "compute/recurrent.h"
#include "compute/top_tokens.h"

#define QUOTED(name) #name
#define NAME_OF(name) QUOTED(name)

namespace dragoman::ISA {

constexpr auto nibbles = takes_nibbles ? pack_nibbles : nullptr;

extern const Kernels table;
const Kernels table = {
    NAME_OF(ISA),       columns,          group,           float_columns,
    shift,              pack,             pack_words,      nibbles,
    pack_floats,        any_linear,       linear_of_bytes, linear_to_bytes,
    residual_norm,      gate,             embed,           self_attention,
    source_attention,   packed_attention, recurrence,      gated_unit,
    additive_attention, store_source,     best_tokens,     top_tokens,
    named_tokens,
};

}  // namespace dragoman::ISA
