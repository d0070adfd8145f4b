package dev.inlay.examples.chat;

import static org.junit.jupiter.api.Assertions.*;

import dev.inlay.Engine;
import dev.inlay.Model;
import java.awt.Component;
import java.awt.Container;
import java.awt.Rectangle;
import java.awt.Robot;
import java.awt.Window;
import java.awt.event.WindowEvent;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import javax.imageio.ImageIO;
import javax.swing.JButton;
import javax.swing.JList;
import javax.swing.JTextField;
import javax.swing.JTextPane;
import javax.swing.SwingUtilities;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Uses the window as a person would, on a display that nobody sees. */
@Timeout(240)
class DesktopChatTest {
  @TempDir Path folder;
  private Engine engine;
  private Model model;
  private ChatWindow window;
  private CountDownLatch closed;

  @BeforeEach
  void load() {
    engine = Engine.create();
    model = engine.load(System.getProperty("model"));
  }

  @AfterEach
  void close() {
    engine.close();
  }

  private static <T> T onSwing(Callable<T> call) throws Exception {
    FutureTask<T> task = new FutureTask<>(call);
    SwingUtilities.invokeAndWait(task);
    return task.get();
  }

  private void open() throws Exception {
    closed = new CountDownLatch(1);
    window = onSwing(() -> {
      ChatWindow made = new ChatWindow(model, folder, DesktopChat.CHARACTER, closed::countDown);
      made.setVisible(true);
      return made;
    });
  }

  private void quit() throws Exception {
    SwingUtilities.invokeLater(() -> window.dispatchEvent(new WindowEvent(window, WindowEvent.WINDOW_CLOSING)));
    assertTrue(closed.await(60, TimeUnit.SECONDS));
  }

  private <T extends Component> T find(Class<T> type, String name) {
    return type.cast(find(window, name));
  }

  private static Component find(Container container, String name) {
    for (Component component : container.getComponents()) {
      if (name.equals(component.getName())) return component;
      if (component instanceof Container inner && !(component instanceof Window)) {
        Component found = find(inner, name);
        if (found != null) return found;
      }
    }
    return null;
  }

  private void click(String name) throws Exception {
    onSwing(() -> {
      find(JButton.class, name).doClick();
      return null;
    });
  }

  private void type(String text) throws Exception {
    onSwing(() -> {
      find(JTextField.class, "input").setText(text);
      return null;
    });
    click("send");
  }

  private String transcript() throws Exception {
    return onSwing(() -> find(JTextPane.class, "transcript").getText());
  }

  private boolean isAnswering() throws Exception {
    return onSwing(() -> find(JButton.class, "stop").isEnabled());
  }

  private int numChats() throws Exception {
    return onSwing(() -> find(JList.class, "chats").getModel().getSize());
  }

  private void choose(int chat) throws Exception {
    onSwing(() -> {
      find(JList.class, "chats").setSelectedIndex(chat);
      return null;
    });
  }

  private void awaitAnswer() throws Exception {
    while (isAnswering()) Thread.sleep(10);
  }

  private void ask(String question) throws Exception {
    type(question);
    awaitAnswer();
  }

  @Test
  void severalChatsAreAnsweredStoppedSavedAndRestored() throws Exception {
    open();
    assertEquals(1, numChats());
    ask("Hello, I am Bjorn.");
    ask("How much is the lantern?");
    assertTrue(transcript().contains("19 coins"), transcript());
    ask("What is my name?");
    assertTrue(transcript().lines().reduce("", (before, line) -> line.isBlank() ? before : line).contains("Bjorn"), transcript());
    String first = transcript();

    // A second chat knows nothing of the first; both stay.
    click("new");
    assertEquals(2, numChats());
    assertFalse(transcript().contains("Bjorn"));
    ask("What does the blanket cost?");
    assertTrue(transcript().contains("25"), transcript());
    choose(0);
    assertEquals(first, transcript());
    ask("How do I get to the mill?");
    first = transcript();
    assertTrue(first.contains("southwest"), first);
    String screenshot = System.getProperty("screenshot");
    if (screenshot != null) {
      // What the window has painted is on the display a moment later.
      new Robot().waitForIdle();
      Thread.sleep(300);
      Rectangle bounds = onSwing(() -> window.getBounds());
      assertTrue(ImageIO.write(new Robot().createScreenCapture(bounds), "png", new File(screenshot)));
    }

    // Answers of two chats at once, of which one is stopped and one is under way when the window is closed.
    choose(1);
    type("Tell a story about a fox and a lantern.");
    Thread.sleep(50);
    choose(0);
    type("Tell a story about a bear.");
    Thread.sleep(50);
    click("stop");
    awaitAnswer();
    first = transcript();
    assertTrue(first.contains("bear"));
    quit();
    try (var files = Files.list(folder)) {
      assertEquals(4, files.count(), "two chats, each with its snapshot");
    }

    // Another program's start, with the model loaded anew.
    engine.close();
    load();
    open();
    assertEquals(2, numChats());
    choose(0);
    assertEquals(first, transcript());
    ask("What is my name?");
    assertTrue(transcript().substring(first.length()).contains("Bjorn"), transcript());
    choose(1);
    assertTrue(transcript().contains("blanket") && transcript().contains("fox"), transcript());
    click("delete");
    assertEquals(1, numChats());
    quit();
    try (var files = Files.list(folder)) {
      assertEquals(2, files.count());
    }
  }

  @Test
  void mainOpensTheWindow() throws Exception {
    DesktopChat.main(new String[] {System.getProperty("model"), folder.toString()});
    window = null;
    while (window == null) {
      window = onSwing(() -> {
        for (Window any : Window.getWindows()) {
          if (any instanceof ChatWindow ours && ours.isVisible()) return ours;
        }
        return null;
      });
    }
    ask("What does the bread cost?");
    assertTrue(transcript().contains("3 coins"), transcript());
    SwingUtilities.invokeAndWait(() -> window.dispatchEvent(new WindowEvent(window, WindowEvent.WINDOW_CLOSING)));
    assertFalse(onSwing(() -> window.isDisplayable()));
  }

  @Test
  void damagedFilesDoNotKeepItFromOpening() throws Exception {
    open();
    ask("Hello, I am Bjorn.");
    quit();
    Path chat;
    try (var files = Files.list(folder)) {
      chat = files.filter(file -> file.toString().endsWith(".chat")).findFirst().orElseThrow();
    }
    // Without its snapshot it is computed again.
    Files.write(Path.of(chat + ".session"), new byte[10]);
    Files.write(folder.resolve("a-broken.chat"), new byte[] {0, 0, 0, 1, 0, 0, 1});
    open();
    assertEquals(1, numChats());
    ask("What is my name?");
    assertTrue(transcript().contains("Bjorn"), transcript());
    quit();
  }
}
