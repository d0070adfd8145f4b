package dev.inlay.examples.chat;

import static java.nio.charset.StandardCharsets.UTF_8;

import dev.inlay.Event;
import dev.inlay.FinishReason;
import dev.inlay.InlayException;
import dev.inlay.Input;
import dev.inlay.Message;
import dev.inlay.Model;
import dev.inlay.Request;
import dev.inlay.RequestOptions;
import dev.inlay.Session;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;

/**
 * One chat: its messages, and the session that has computed them. Knows nothing of windows. Of one thread, but for {@link Answer}.
 */
final class Conversation implements AutoCloseable {
  private static final int FORMAT = 1;

  private final Model model;
  private final List<Message> messages = new ArrayList<>();
  private Session session;
  private String title = "New chat";

  Conversation(Model model, String system) {
    this.model = model;
    messages.add(Message.system(system));
    session = model.newSession();
  }

  private Conversation(Model model) {
    this.model = model;
  }

  String title() {
    return title;
  }

  /** The first one is the system's. */
  List<Message> messages() {
    return List.copyOf(messages);
  }

  /** An answer under way; {@link #stop} may be called from any thread. */
  final class Answer {
    private final Request request;
    private final StringBuilder text = new StringBuilder();

    private Answer(Request request) {
      this.request = request;
    }

    /** Waits for the next piece, on a thread of the caller's; null: the end. */
    String next() throws InterruptedException {
      while (!request.isFinished()) {
        Event event = request.take();
        if (event instanceof Event.Finished end && end.reason() == FinishReason.ERROR) throw end.error().orElseThrow();
        if (event instanceof Event.Tokens tokens && !tokens.text().isEmpty()) {
          text.append(tokens.text());
          return tokens.text();
        }
      }
      return null;
    }

    void stop() {
      request.cancel();
    }

    /** Makes what came a message: also half an answer, or what there was before an error. */
    void keep() {
      request.close();
      messages.add(Message.assistant(text.toString().strip()));
    }
  }

  /** Asks; what the session has of the conversation is not computed again. */
  Answer ask(String question) {
    if (messages.size() == 1) title = question.length() > 28 ? question.substring(0, 27).strip() + "\u2026" : question;
    messages.add(Message.user(question));
    RequestOptions options = model.requestOptions().maxTokens(600).temperature(0.7).topP(0.95).seed(messages.size());
    try {
      return new Answer(session.submit(Input.chat(messages), options));
    } catch (RuntimeException e) {
      messages.remove(messages.size() - 1);
      throw e;
    }
  }

  /** Two files: {@code path} with the text, and beside it the session's snapshot, each replaced as a whole. */
  void save(Path path) throws IOException {
    session.save(snapshot(path));
    Path temporary = path.resolveSibling(path.getFileName() + ".tmp");
    try (DataOutputStream out = new DataOutputStream(Files.newOutputStream(temporary))) {
      out.writeInt(FORMAT);
      writeText(out, title);
      out.writeInt(messages.size());
      for (Message message : messages) {
        writeText(out, message.role());
        writeText(out, message.content());
      }
    }
    Files.move(temporary, path, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }

  /** Without its snapshot, or with one of another model, the conversation is computed again when it goes on. */
  static Conversation restore(Model model, Path path) throws IOException {
    Conversation conversation = new Conversation(model);
    try (DataInputStream in = new DataInputStream(Files.newInputStream(path))) {
      if (in.readInt() != FORMAT) throw new IOException(path + " is not a chat of this version");
      conversation.title = readText(in);
      for (int left = in.readInt(); left > 0; --left) conversation.messages.add(new Message(readText(in), readText(in)));
    }
    if (conversation.messages.isEmpty()) throw new IOException(path + " has no messages");
    try {
      conversation.session = model.restore(snapshot(path));
    } catch (InlayException e) {
      conversation.session = model.newSession();
    }
    return conversation;
  }

  static void delete(Path path) throws IOException {
    for (Path file : List.of(path, snapshot(path))) {
      try {
        Files.delete(file);
      } catch (NoSuchFileException e) {
        // It was never saved.
      }
    }
  }

  private static Path snapshot(Path path) {
    return path.resolveSibling(path.getFileName() + ".session");
  }

  private static void writeText(DataOutputStream out, String text) throws IOException {
    byte[] bytes = text.getBytes(UTF_8);
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  private static String readText(DataInputStream in) throws IOException {
    int length = in.readInt();
    byte[] bytes = length < 0 ? new byte[0] : in.readNBytes(length);
    if (bytes.length != length) throw new IOException("the file is cut");
    return new String(bytes, UTF_8);
  }

  @Override
  public void close() {
    session.close();
  }
}
