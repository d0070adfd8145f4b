package dev.inlay;

import dev.inlay.Event.Finished;
import dev.inlay.Event.Logits;
import dev.inlay.Event.Logprob;
import dev.inlay.Event.Scores;
import dev.inlay.Event.TokenLogprobs;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** Makes events of the library's. */
final class Events {
  private Events() {}

  /** Reads the library's event and releases it. Null: of a kind that came after this jar. */
  static Event take(long event) {
    InlayEventInfo info = new InlayEventInfo();
    try {
      InlayC.inlay_event_get_info(event, info);
      return switch (info.getKind()) {
        case 0 -> new Event.Tokens(info.getTokens(), Text.string(info.getText()), info.getBytes(), logprobs(info));
        case 1 -> new Logits(info.getPosition(), info.getLogits());
        case 2 -> new Scores(info.getPosition(), info.getScores());
        case 3 -> finished(info);
        case 4 -> new Event.Embedding(info.getEmbedding());
        case 5 -> new Event.Classification(info.getLogits(), info.getScores());
        default -> null;
      };
    } finally {
      info.delete();
      InlayC.inlay_event_release(event);
    }
  }

  private static Finished finished(InlayEventInfo info) {
    FinishReason reason = FinishReason.values()[info.getFinish_reason()];
    Optional<InlayException> error = reason == FinishReason.ERROR
        ? Optional.of(InlayException.of(info.getStatus(), Text.string(info.getMessage()))) : Optional.empty();
    return new Finished(reason, error, info.getStop_token(), info.getStop_string(), info.getPrompt_tokens(),
        info.getCached_tokens(), info.getGenerated_tokens(), info.getQueue_us(), info.getFirst_token_us(), info.getTotal_us());
  }

  private static List<TokenLogprobs> logprobs(InlayEventInfo info) {
    if (info.getNum_logprobs() == 0) return List.of();
    int[] pairs = info.getLogprobs();
    int each = (int) info.getTop_logprobs() + 1;
    List<TokenLogprobs> all = new ArrayList<>();
    for (int first = 0; first < pairs.length / 2; first += each) {
      List<Logprob> alternatives = new ArrayList<>();
      for (int i = first + 1; i < first + each; ++i) alternatives.add(logprob(pairs, i));
      all.add(new TokenLogprobs(logprob(pairs, first), List.copyOf(alternatives)));
    }
    return List.copyOf(all);
  }

  private static Logprob logprob(int[] pairs, int i) {
    return new Logprob(pairs[2 * i], Float.intBitsToFloat(pairs[2 * i + 1]));
  }
}
