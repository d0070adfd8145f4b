// FairShare: whose turn it is, so that one who asks for much does not keep
// others waiting. Start-time fair queueing (Goyal, Vin and Cheng, 1996) over
// tokens; knows no requests.
#ifndef INLAY_SCHED_FAIR_SHARE_H_
#define INLAY_SCHED_FAIR_SHARE_H_

#include <algorithm>
#include <cstdint>
#include <unordered_map>

namespace inlay {

// Thread-compatible.
class FairShare {
 public:
  // The tag of a request of `tokens` tokens that counts against `key`: requests
  // are served in ascending order of tags. Who has been served little gets a
  // small one, but nobody saves up turns while away.
  double Tag(uint64_t key, int64_t tokens) {
    if (served_.size() >= next_prune_) Prune();
    double& served = served_[key];
    const double tag = std::max(served, now_);
    served = tag + static_cast<double>(tokens);
    return tag;
  }
  // `key` was served `tokens` (may be negative) beyond what its tag said.
  void Charge(uint64_t key, int64_t tokens) {
    const auto found = served_.find(key);
    if (found != served_.end()) found->second += static_cast<double>(tokens);
  }
  // Nobody counts against `key` any more.
  void Forget(uint64_t key) { served_.erase(key); }
  // Nothing waits or runs: all begin anew, whatever they were served.
  void Idle() { served_.clear(); }
  // A request with this tag is served now.
  void Advance(double tag) { now_ = std::max(now_, tag); }

 private:
  // Who is not ahead of the present is as good as new.
  void Prune() {
    for (auto it = served_.begin(); it != served_.end();) {
      if (it->second <= now_) {
        served_.erase(it++);
      } else {
        ++it;
      }
    }
    next_prune_ = std::max<size_t>(1024, 2 * served_.size());
  }

  std::unordered_map<uint64_t, double> served_;
  double now_ = 0;
  size_t next_prune_ = 1024;
};

}  // namespace inlay

#endif  // INLAY_SCHED_FAIR_SHARE_H_
