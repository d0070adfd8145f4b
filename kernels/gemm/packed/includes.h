// What the files of this folder that end in -inl.h use. Included before the
// region that is compiled for an instruction set: what these define inline may
// be taken by other files, so it must be compiled for the baseline.
#ifndef INLAY_KERNELS_GEMM_PACKED_INCLUDES_H_
#define INLAY_KERNELS_GEMM_PACKED_INCLUDES_H_

#include <hwy/base.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/gemm/finish.h"
#include "kernels/gemm/packed/layout.h"
#include "kernels/quant/bits.h"
#include "kernels/quant/block.h"
#include "kernels/quant/bnb_fp4/bnb_fp4.h"
#include "kernels/quant/fp4.h"
#include "kernels/quant/grouped.h"
#include "kernels/quant/iq1_m/iq1_m.h"
#include "kernels/quant/iq1_s/iq1_s.h"
#include "kernels/quant/iq2_s/iq2_s.h"
#include "kernels/quant/iq2_xs/iq2_xs.h"
#include "kernels/quant/iq2_xxs/iq2_xxs.h"
#include "kernels/quant/iq3_s/iq3_s.h"
#include "kernels/quant/iq3_xxs/iq3_xxs.h"
#include "kernels/quant/iq4.h"
#include "kernels/quant/iq4_nl/iq4_nl.h"
#include "kernels/quant/iq4_xs/iq4_xs.h"
#include "kernels/quant/k_scales.h"
#include "kernels/quant/mxfp4/mxfp4.h"
#include "kernels/quant/nf4/nf4.h"
#include "kernels/quant/nvfp4/nvfp4.h"
#include "kernels/quant/nvfp4_f32/nvfp4_f32.h"
#include "kernels/quant/q2_k/q2_k.h"
#include "kernels/quant/q3_k/q3_k.h"
#include "kernels/quant/q4_0/q4_0.h"
#include "kernels/quant/q4_1/q4_1.h"
#include "kernels/quant/q4_k/q4_k.h"
#include "kernels/quant/q5_0/q5_0.h"
#include "kernels/quant/q5_1/q5_1.h"
#include "kernels/quant/q5_k/q5_k.h"
#include "kernels/quant/q6_k/q6_k.h"
#include "kernels/quant/q8_0/q8_0.h"
#include "kernels/quant/quant.h"
#include "kernels/quant/super_block.h"
#include "kernels/quant/tq1_0/tq1_0.h"
#include "kernels/quant/tq2_0/tq2_0.h"
#include "memory/device/thread_pool.h"

#endif  // INLAY_KERNELS_GEMM_PACKED_INCLUDES_H_
