package dev.inlay;

/**
 * What steps did; a sum where there were several.
 *
 * @param numRequests that took part
 * @param prefillTokens prompt tokens computed
 * @param decodeTokens generated tokens computed
 * @param sampledTokens tokens chosen
 * @param moreWork another step now would do something
 * @param predictedMicros what the steps were expected to take
 * @param overshootMicros how far they went past the budget; 0 without one
 */
public record StepInfo(int numRequests, int prefillTokens, int decodeTokens, int sampledTokens, boolean moreWork,
    long durationMicros, long predictedMicros, long overshootMicros) {
  StepInfo(InlayStepInfo from) {
    this((int) from.getNum_requests(), (int) from.getPrefill_tokens(), (int) from.getDecode_tokens(),
        (int) from.getSampled_tokens(), from.getMore_work() != 0, from.getDuration_us(), from.getPredicted_us(),
        from.getOvershoot_us());
  }
}
