package dev.inlay;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a chat template reads: messages and any other variable. Not thread-safe. */
public final class Chat {
  private final Map<String, Object> variables = new LinkedHashMap<>();

  private Chat() {}

  public static Chat of(List<Message> messages) {
    return new Chat().set("messages", messages.stream()
        .map(message -> Map.of("role", message.role(), "content", message.content())).toList());
  }

  public static Chat of(Message... messages) {
    return of(List.of(messages));
  }

  /** Whether the place for an answer is put at the end. Default: in requests yes, in prefixes no, rendered alone as the template does. */
  public Chat addGenerationPrompt(boolean on) {
    return set("add_generation_prompt", on);
  }

  /** Whether the last message goes on, instead of another one beginning; its content ends the text. Default: no. */
  public Chat continueFinalMessage(boolean on) {
    return set("continue_final_message", on);
  }

  /**
   * Any variable that the template reads, such as "tools"; "template", "bos_token", "eos_token" and "now" override the model's.
   *
   * @param value null, a String, Boolean, Number, or a List or Map of such
   * @throws IllegalArgumentException a value of another type
   */
  public Chat set(String name, Object value) {
    Json.write(value);
    variables.put(name, value);
    return this;
  }

  String json() {
    return Json.write(variables);
  }
}
