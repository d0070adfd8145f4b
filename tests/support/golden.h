// Golden: the reference outputs stored beside a test model (golden.json).
#ifndef INLAY_TESTS_SUPPORT_GOLDEN_H_
#define INLAY_TESTS_SUPPORT_GOLDEN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace inlay {

struct GoldenCase {
  std::string name;
  std::vector<int32_t> input_ids;
  std::vector<int> positions;
  std::vector<std::vector<float>> logits;  // one row a position
  double logit_std = 0;
  // How far the logits move (over logit_std) when every weight changes by a
  // random relative 3e-7.
  double sensitivity = 0;
  std::vector<int32_t> greedy;
  std::vector<double> greedy_margins;  // top-1 minus top-2 logit
  // The residual stream at the last position after each layer; stored for the
  // last case only.
  std::vector<std::vector<float>> layer_outputs;
  // Of checkpoints with 8-bit activations: the last position's logits with
  // inputs of layers rounded as the checkpoint says.
  std::vector<float> rounded_logits;
  // How far those move (over logit_std) when weights change as for
  // `sensitivity`: inputs round to other steps.
  double rounded_noise = 0;
};

// `directory`: of the model. Empty (and a test failure) when unreadable.
std::vector<GoldenCase> ReadGolden(const std::string& directory);

// The largest |got - want| over the stored positions, over logit_std; infinity
// for a NaN. got[p]: logits of position p.
double GoldenError(const GoldenCase& golden,
                   const std::vector<std::vector<float>>& got);

}  // namespace inlay

#endif  // INLAY_TESTS_SUPPORT_GOLDEN_H_
