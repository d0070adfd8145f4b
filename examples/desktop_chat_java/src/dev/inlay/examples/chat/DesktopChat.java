package dev.inlay.examples.chat;

import dev.inlay.Engine;
import dev.inlay.InlayException;
import dev.inlay.Model;
import java.nio.file.Path;

/**
 * {@code java -jar desktop_chat.jar MODEL [FOLDER [SYSTEM]]}: chats with MODEL, kept in FOLDER (default ~/.inlay_chat); new ones begin
 * with SYSTEM.
 */
public final class DesktopChat {
  /** What the model that ships with Inlay does best: a character that remembers. */
  static final String CHARACTER = "You are Mira, a cheerful innkeeper in Saltmoor. You sell: bread (3 coins), lantern (19 coins), "
      + "blanket (25 coins). The mill is in the southwest.";

  private DesktopChat() {}

  public static void main(String[] arguments) {
    if (arguments.length < 1 || arguments.length > 3) {
      System.err.println("usage: java -jar desktop_chat.jar MODEL [FOLDER [SYSTEM]]");
      System.exit(2);
    }
    Path folder = arguments.length > 1 ? Path.of(arguments[1]) : Path.of(System.getProperty("user.home"), ".inlay_chat");
    Engine engine = Engine.create();
    try {
      Model model = engine.load(arguments[0]);
      ChatWindow.open(model, folder, arguments.length > 2 ? arguments[2] : CHARACTER, engine::close);
    } catch (InlayException e) {
      engine.close();
      System.err.println(e.getMessage());
      System.exit(1);
    }
  }
}
