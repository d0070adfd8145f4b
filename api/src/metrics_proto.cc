#include "api/src/metrics_proto.h"

#include <google/protobuf/arena.h>

#include "stats.pb.h"

namespace inlay::api {
namespace {

void Fill(const Histogram& from, stats::Histogram* to) {
  to->set_count(from.count());
  to->set_sum(from.sum());
  to->set_min(from.min());
  to->set_max(from.max());
  for (size_t i = 0; i < Histogram::kNumBuckets; ++i) {
    if (from.bucket(i) == 0) continue;
    stats::Bucket* bucket = to->add_buckets();
    bucket->set_low(Histogram::LowerBound(i));
    bucket->set_high(Histogram::UpperBound(i));
    bucket->set_count(from.bucket(i));
  }
}

}  // namespace

std::string MetricsProto(const EngineMetrics& metrics) {
  // Without an arena, a message that finds no memory for one more element leaks
  // that.
  google::protobuf::Arena arena;
  auto& message =
      *google::protobuf::Arena::CreateMessage<stats::EngineStats>(&arena);
  // By name, so that a metric the schema lacks does not compile.
#define INLAY_PUT_Counter(field) message.set_##field(metrics.field);
#define INLAY_PUT_Gauge(field) message.set_##field(metrics.field);
#define INLAY_PUT_Histogram(field) \
  Fill(metrics.field, message.mutable_##field());
#define INLAY_METRIC(kind, field, unit, help) INLAY_PUT_##kind(field)
#include "core/engine/metrics.def"
#undef INLAY_PUT_Counter
#undef INLAY_PUT_Gauge
#undef INLAY_PUT_Histogram
  return message.SerializeAsString();
}

}  // namespace inlay::api
