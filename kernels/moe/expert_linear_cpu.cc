// expert_linear on CPU: gemm's rows over the rows of x that an expert's slots
// ask for. Those are brought together in the workspace, and what comes out is
// put where the slots are: two copies of activations beside a product with a
// matrix. A single slot needs neither.
//
// Few slots: one loop over all experts' matrices, each cut into pieces of its
// rows, as waking threads once for every expert takes as long as reading it.
// Many: one expert after another, each product on all threads.
#include <algorithm>
#include <cstring>

#include "absl/functional/function_ref.h"
#include "kernels/moe/expert_linear.h"
#include "memory/device/thread_pool.h"
#include "memory/status.h"

namespace inlay {
namespace {

constexpr size_t kAlignment = 256;
constexpr int64_t kFewSlots = 64;
// Rows of a piece: whole strips and tiles of every row of gemm, and so many
// bytes that starting on them costs nothing; not more pieces than these.
constexpr int64_t kPieceRows = 96;
constexpr int64_t kPieceBytes = 256 << 10;
constexpr int64_t kMaxPieces = 16;

size_t Aligned(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t FloatBytes(int64_t rows, int64_t columns) {
  return Aligned(RowBytes(DType::kF32, static_cast<size_t>(rows * columns)));
}

// Rows of w in a piece.
int64_t PieceRows(const GemmDesc& desc) {
  const auto row_bytes =
      static_cast<int64_t>(RowBytes(desc.weight, static_cast<size_t>(desc.k)));
  const int64_t rows =
      std::max(kPieceBytes / row_bytes, (desc.n - 1) / kMaxPieces + 1);
  return (rows - 1) / kPieceRows * kPieceRows + kPieceRows;
}

int64_t Pieces(const GemmDesc& desc) {
  return (desc.n - 1) / PieceRows(desc) + 1;
}

size_t GemmBytes(const GemmRow& row, const GemmDesc& desc, int64_t rows) {
  return row.workspace_bytes == nullptr ? 0 : row.workspace_bytes(desc, rows);
}

// An expert has each token at most once; few slots are all gathered at once.
int64_t GatheredRows(const ExpertLinearDesc& desc, int64_t tokens) {
  return std::max(tokens, std::min(tokens * desc.top_k, kFewSlots));
}

struct Workspace {
  Workspace(const ExpertLinearDesc& desc, int64_t tokens, void* base)
      : x(MatrixView(base, DType::kF32, GatheredRows(desc, tokens),
                     desc.gemm.k)),
        y(MatrixView(x.data + FloatBytes(x.rows(), desc.gemm.k), DType::kF32,
                     x.rows(), desc.gemm.n)),
        gemm(y.data + FloatBytes(y.rows(), desc.gemm.n)) {}
  TensorView x;
  TensorView y;
  std::byte* gemm;
};

void CopyRows(int64_t rows, size_t bytes, ThreadPool& pool,
              absl::FunctionRef<const std::byte*(int64_t)> from,
              absl::FunctionRef<std::byte*(int64_t)> to) {
  // Less than this costs less than waking a thread.
  constexpr size_t kGrainBytes = 64 << 10;
  pool.ParallelFor(rows, static_cast<int64_t>(kGrainBytes / bytes + 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = begin; i < end; ++i) {
                       std::memcpy(to(i), from(i), bytes);
                     }
                   });
}

class ExpertProducts {
 public:
  ExpertProducts(const GemmRow& row, const ExpertLinearDesc& desc,
                 const ExpertLinearParams& params, Stream& stream)
      : row_(row),
        desc_(desc),
        params_(params),
        stream_(stream),
        pool_(*stream.thread_pool()),
        space_(desc, params.y.rows() / desc.top_k, params.workspace) {}

  absl::Status Run() {
    const int64_t slots = params_.y.rows();
    if (slots <= kFewSlots) return RunFew(slots);
    for (int e = 0; e < desc_.num_experts; ++e) {
      INLAY_RETURN_IF_ERROR(RunExpert(e));
    }
    return absl::OkStatus();
  }

 private:
  int64_t Rows(int e) const {
    return params_.offsets[e + 1] - params_.offsets[e];
  }
  const std::byte* Input(int32_t slot) const {
    return params_.x.row<std::byte>(desc_.row_a_slot ? slot
                                                     : slot / desc_.top_k);
  }
  // The product with rows [first, first + part.n) of the expert's matrix.
  GemmParams Product(int e, int64_t first, const GemmDesc& part) const {
    const GemmDesc& whole = desc_.gemm;
    GemmDesc before = whole;
    before.n = first;
    const WeightPacking<GemmDesc>* packing =
        row_.packing == nullptr ? nullptr : row_.packing(whole);
    const size_t offset =
        packing != nullptr
            ? packing->bytes(before)
            : RowBytes(whole.weight, static_cast<size_t>(first * whole.k));
    GemmParams gemm;
    gemm.w = MatrixView(const_cast<std::byte*>(params_.w.each[e]) + offset,
                        whole.weight, part.n, whole.k);
    if (params_.bias != nullptr) {
      gemm.bias = params_.bias + e * whole.n + first;
    }
    return gemm;
  }
  // Rows of the workspace from `first` on, and the columns that a piece makes.
  static TensorView Piece(const TensorView& y, int64_t first_row, int64_t rows,
                          int64_t first, int64_t count) {
    TensorView piece = y.RowSlice(first_row, rows);
    piece.data += RowBytes(DType::kF32, static_cast<size_t>(first));
    piece.dims[1] = count;
    return piece;
  }

  absl::Status RunExpert(int e) {
    const int32_t* slots = params_.slots + params_.offsets[e];
    const int64_t rows = Rows(e);
    if (rows == 0) return absl::OkStatus();
    GemmParams gemm = Product(e, 0, desc_.gemm);
    gemm.workspace = space_.gemm;
    gemm.x = space_.x.RowSlice(0, rows);
    gemm.y = space_.y.RowSlice(0, rows);
    CopyRows(
        rows, gemm.x.row_stride_bytes, pool_,
        [&](int64_t i) { return Input(slots[i]); },
        [&](int64_t i) { return gemm.x.row<std::byte>(i); });
    INLAY_RETURN_IF_ERROR(row_.run(desc_.gemm, gemm, stream_));
    CopyRows(
        rows, gemm.y.row_stride_bytes, pool_,
        [&](int64_t i) { return gemm.y.row<std::byte>(i); },
        [&](int64_t i) { return params_.y.row<std::byte>(slots[i]); });
    return absl::OkStatus();
  }

  absl::Status RunFew(int64_t num_slots) {
    struct Active {
      int expert;
      std::byte* gemm;  // workspaces of its pieces
    };
    Active active[kFewSlots];
    int64_t count = 0;
    std::byte* next = space_.gemm;
    const int64_t pieces = Pieces(desc_.gemm);
    for (int e = 0; e < desc_.num_experts; ++e) {
      if (Rows(e) == 0) continue;
      active[count++] = {e, next};
      next += static_cast<size_t>(pieces) *
              Aligned(GemmBytes(row_, desc_.gemm, Rows(e)));
    }
    if (num_slots > desc_.top_k) {
      CopyRows(
          num_slots, space_.x.row_stride_bytes, pool_,
          [&](int64_t i) { return Input(params_.slots[i]); },
          [&](int64_t i) { return space_.x.row<std::byte>(i); });
    }
    // CPU rows have no errors.
    pool_.ParallelFor(count * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Active& of = active[i / pieces];
        RunPiece(of.expert, i % pieces,
                 of.gemm +
                     static_cast<size_t>(i % pieces) *
                         Aligned(GemmBytes(row_, desc_.gemm, Rows(of.expert))));
      }
    });
    return absl::OkStatus();
  }

  void RunPiece(int e, int64_t piece, std::byte* workspace) const {
    const int64_t first = piece * PieceRows(desc_.gemm);
    GemmDesc part = desc_.gemm;
    part.n = std::min(PieceRows(part), part.n - first);
    const int64_t rows = Rows(e);
    const int64_t at = params_.offsets[e];
    const int32_t* slots = params_.slots + at;
    GemmParams gemm = Product(e, first, part);
    gemm.workspace = workspace;
    if (rows == 1) {
      gemm.x = params_.x.RowSlice(
          desc_.row_a_slot ? slots[0] : slots[0] / desc_.top_k, 1);
      gemm.y = Piece(params_.y, slots[0], 1, first, part.n);
    } else {
      gemm.x = space_.x.RowSlice(at, rows);
      gemm.y = Piece(space_.y, at, rows, first, part.n);
    }
    row_.run(part, gemm, stream_).IgnoreError();
    if (rows == 1) return;
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(Piece(params_.y, slots[i], 1, first, part.n).data,
                  gemm.y.row<std::byte>(i),
                  RowBytes(DType::kF32, static_cast<size_t>(part.n)));
    }
  }

  const GemmRow& row_;
  const ExpertLinearDesc& desc_;
  const ExpertLinearParams& params_;
  Stream& stream_;
  ThreadPool& pool_;
  Workspace space_;
};

}  // namespace

// The last of that name, which refuses only what it cannot compute.
const GemmRow* GemmRowNamed(std::string_view name) {
  const GemmRow* found = nullptr;
  for (const GemmRow& row : GemmTable()) {
    if (row.name == name) found = &row;
  }
  return found;
}

const GemmRow* FirstGemmRowNamed(std::string_view name) {
  for (const GemmRow& row : GemmTable()) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

size_t ExpertLinearCpuBytes(const GemmRow& row, const ExpertLinearDesc& desc,
                            int64_t max_tokens) {
  const int64_t gathered = GatheredRows(desc, max_tokens);
  // Scratch of gemm grows with its rows in steps, of which the first may come
  // late. What any number of rows has above a straight line to that of the most
  // that are few is enough beside it for each expert's; both grow with slots.
  const int64_t few = std::min(max_tokens * desc.top_k, kFewSlots);
  const auto experts =
      static_cast<size_t>(std::min<int64_t>(few, desc.num_experts));
  const size_t most = GemmBytes(row, desc.gemm, kFewSlots);
  const auto line = [&](int64_t rows) {
    return most * static_cast<size_t>(rows) / static_cast<size_t>(kFewSlots);
  };
  size_t above = 0;
  for (int64_t rows = 1; rows <= few; ++rows) {
    const size_t own = GemmBytes(row, desc.gemm, rows);
    above = std::max(above, own - std::min(own, line(rows)));
  }
  const size_t pieces = static_cast<size_t>(Pieces(desc.gemm)) *
                        (line(few) + experts * (above + kAlignment));
  return FloatBytes(gathered, desc.gemm.k) + FloatBytes(gathered, desc.gemm.n) +
         std::max(pieces, GemmBytes(row, desc.gemm, max_tokens));
}

absl::Status RunExpertLinearCpu(const GemmRow& row,
                                const ExpertLinearDesc& desc,
                                const ExpertLinearParams& params,
                                Stream& stream) {
  return ExpertProducts(row, desc, params, stream).Run();
}

}  // namespace inlay
