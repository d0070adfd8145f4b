package dev.inlay.examples.chat;

import dev.inlay.Message;
import dev.inlay.Model;
import java.awt.BorderLayout;
import java.awt.Color;
import java.awt.Dimension;
import java.awt.Font;
import java.awt.event.WindowAdapter;
import java.awt.event.WindowEvent;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import javax.swing.BorderFactory;
import javax.swing.DefaultListModel;
import javax.swing.JButton;
import javax.swing.JFrame;
import javax.swing.JLabel;
import javax.swing.JList;
import javax.swing.JOptionPane;
import javax.swing.JPanel;
import javax.swing.JScrollPane;
import javax.swing.JSplitPane;
import javax.swing.JTextField;
import javax.swing.JTextPane;
import javax.swing.ListSelectionModel;
import javax.swing.SwingUtilities;
import javax.swing.SwingWorker;
import javax.swing.text.BadLocationException;
import javax.swing.text.SimpleAttributeSet;
import javax.swing.text.StyleConstants;

/** The window: chats on the left, the chosen one on the right. Answers of several chats may be under way. Swing's thread only. */
final class ChatWindow extends JFrame {
  private static final long serialVersionUID = 1;
  private static final SimpleAttributeSet NAME = new SimpleAttributeSet();
  private static final SimpleAttributeSet OWN_NAME = new SimpleAttributeSet();
  private static final SimpleAttributeSet TEXT = new SimpleAttributeSet();

  static {
    StyleConstants.setBold(NAME, true);
    StyleConstants.setForeground(NAME, new Color(0x1b6e4b));
    StyleConstants.setBold(OWN_NAME, true);
    StyleConstants.setForeground(OWN_NAME, new Color(0x2a5db0));
  }

  /** A conversation in the list, and where it is saved. */
  private static final class Entry {
    final Conversation conversation;
    final Path file;

    Entry(Conversation conversation, Path file) {
      this.conversation = conversation;
      this.file = file;
    }

    @Override
    public String toString() {
      return conversation.title();
    }
  }

  private final transient Model model;
  private final transient Path folder;
  private final String system;
  private final transient Map<Entry, Worker> workers = new HashMap<>();
  private final DefaultListModel<Entry> entries = new DefaultListModel<>();
  private final JList<Entry> list = new JList<>(entries);
  private final JTextPane transcript = new JTextPane();
  private final JTextField input = new JTextField();
  private final JButton send = new JButton("Send");
  private final JButton stop = new JButton("Stop");
  private final JLabel status = new JLabel(" ");
  private final transient Runnable onClosed;

  /** Restores the chats in {@code folder}. */
  ChatWindow(Model model, Path folder, String system, Runnable onClosed) throws IOException {
    super("Inlay chat");
    this.model = model;
    this.folder = folder;
    this.system = system;
    this.onClosed = onClosed;
    layOut();
    Files.createDirectories(folder);
    restore();
    if (entries.isEmpty()) newChat();
    list.setSelectedIndex(entries.size() - 1);
  }

  private void layOut() {
    list.setName("chats");
    list.setSelectionMode(ListSelectionModel.SINGLE_SELECTION);
    list.addListSelectionListener(event -> show(list.getSelectedValue()));
    transcript.setName("transcript");
    transcript.setEditable(false);
    transcript.setFont(new Font(Font.SANS_SERIF, Font.PLAIN, 14));
    transcript.setBorder(BorderFactory.createEmptyBorder(8, 10, 8, 10));
    input.setName("input");
    input.addActionListener(event -> send());
    send.setName("send");
    send.addActionListener(event -> send());
    stop.setName("stop");
    stop.addActionListener(event -> workers.get(list.getSelectedValue()).answer.stop());

    JPanel chats = new JPanel(new BorderLayout(4, 4));
    JPanel chatButtons = new JPanel();
    chatButtons.add(button("new", "New", this::newChat));
    chatButtons.add(button("delete", "Delete", this::deleteChat));
    chats.add(new JScrollPane(list));
    chats.add(chatButtons, BorderLayout.SOUTH);
    JPanel buttons = new JPanel();
    buttons.add(send);
    buttons.add(stop);
    JPanel line = new JPanel(new BorderLayout(4, 4));
    line.add(input);
    line.add(buttons, BorderLayout.EAST);
    line.add(status, BorderLayout.SOUTH);
    JPanel chat = new JPanel(new BorderLayout(4, 4));
    chat.add(new JScrollPane(transcript));
    chat.add(line, BorderLayout.SOUTH);
    JSplitPane split = new JSplitPane(JSplitPane.HORIZONTAL_SPLIT, chats, chat);
    split.setDividerLocation(220);
    split.setBorder(BorderFactory.createEmptyBorder(6, 6, 6, 6));
    add(split);
    setPreferredSize(new Dimension(860, 560));
    pack();
    setDefaultCloseOperation(DO_NOTHING_ON_CLOSE);
    addWindowListener(new WindowAdapter() {
      @Override
      public void windowClosing(WindowEvent event) {
        quit();
      }
    });
  }

  private static JButton button(String name, String text, Runnable action) {
    JButton button = new JButton(text);
    button.setName(name);
    button.addActionListener(event -> action.run());
    return button;
  }

  // ---- Chats

  private void newChat() {
    Path file = folder.resolve("chat-" + System.currentTimeMillis() + "-" + entries.size() + ".chat");
    entries.addElement(new Entry(new Conversation(model, system), file));
    list.setSelectedIndex(entries.size() - 1);
    input.requestFocusInWindow();
  }

  private void deleteChat() {
    Entry entry = list.getSelectedValue();
    if (entry == null || workers.containsKey(entry)) return;
    try {
      Conversation.delete(entry.file);
    } catch (IOException e) {
      tell("The chat's file could not be deleted: " + e.getMessage());
      return;
    }
    entry.conversation.close();
    entries.removeElement(entry);
    if (entries.isEmpty()) newChat();
    list.setSelectedIndex(entries.size() - 1);
  }

  private void restore() throws IOException {
    List<Path> files;
    try (Stream<Path> all = Files.list(folder)) {
      files = all.filter(file -> file.toString().endsWith(".chat")).sorted().toList();
    }
    for (Path file : files) {
      try {
        entries.addElement(new Entry(Conversation.restore(model, file), file));
      } catch (IOException e) {
        tell("A chat was left out: " + e.getMessage());
      }
    }
  }

  private void save(Entry entry) {
    try {
      entry.conversation.save(entry.file);
    } catch (IOException | RuntimeException e) {
      tell("The chat could not be saved: " + e.getMessage());
    }
  }

  /** Stops what is under way, keeps what came, and saves; the last worker closes the window. */
  private void quit() {
    setVisible(false);
    if (workers.isEmpty()) {
      for (int i = 0; i < entries.size(); ++i) entries.get(i).conversation.close();
      dispose();
      onClosed.run();
      return;
    }
    for (Worker worker : List.copyOf(workers.values())) worker.answer.stop();
  }

  // ---- Talking

  private void send() {
    Entry entry = list.getSelectedValue();
    String question = input.getText().strip();
    if (question.isEmpty() || entry == null || workers.containsKey(entry)) return;
    try {
      Worker worker = new Worker(entry, entry.conversation.ask(question));
      workers.put(entry, worker);
      input.setText("");
      show(entry);
      list.repaint();
      worker.execute();
    } catch (RuntimeException e) {
      tell(e.getMessage());
    }
  }

  /** Waits for pieces beside Swing's thread, and hands them to it. */
  private final class Worker extends SwingWorker<Void, String> {
    final Entry entry;
    final Conversation.Answer answer;
    final StringBuilder text = new StringBuilder();
    private final long start = System.nanoTime();
    private long firstMillis;

    Worker(Entry entry, Conversation.Answer answer) {
      this.entry = entry;
      this.answer = answer;
    }

    @Override
    protected Void doInBackground() throws InterruptedException {
      for (String piece = answer.next(); piece != null; piece = answer.next()) {
        if (firstMillis == 0) firstMillis = 1 + (System.nanoTime() - start) / 1_000_000;
        publish(piece);
      }
      return null;
    }

    @Override
    protected void process(List<String> pieces) {
      for (String piece : pieces) {
        text.append(piece);
        if (entry == list.getSelectedValue()) append(piece, TEXT);
      }
    }

    @Override
    protected void done() {
      workers.remove(entry);
      answer.keep();
      String result = String.format("First words after %d ms, all after %d ms.", firstMillis, (System.nanoTime() - start) / 1_000_000);
      try {
        get();
      } catch (Exception e) {
        result = e.getCause() == null ? e.getMessage() : e.getCause().getMessage();
      }
      save(entry);
      if (entry == list.getSelectedValue()) {
        show(entry);
        tell(result);
      }
      if (!isVisible()) quit();
    }
  }

  // ---- What is seen

  private void show(Entry entry) {
    Worker worker = workers.get(entry);
    send.setEnabled(worker == null);
    stop.setEnabled(worker != null);
    transcript.setText("");
    tell(worker == null ? " " : "Answering \u2026");
    if (entry == null) return;
    for (Message message : entry.conversation.messages()) {
      if (message.role().equals("user")) {
        append("You\n", OWN_NAME);
        append(message.content() + "\n\n", TEXT);
      } else if (message.role().equals("assistant")) {
        append("Inlay\n", NAME);
        append(message.content() + "\n\n", TEXT);
      }
    }
    if (worker != null) {
      append("Inlay\n", NAME);
      append(worker.text.toString(), TEXT);
    }
  }

  private void append(String text, SimpleAttributeSet style) {
    try {
      transcript.getDocument().insertString(transcript.getDocument().getLength(), text, style);
      transcript.setCaretPosition(transcript.getDocument().getLength());
    } catch (BadLocationException e) {
      throw new AssertionError(e);
    }
  }

  private void tell(String text) {
    status.setText(text);
  }

  /** Shows one on Swing's thread; a failure is told and ends the program's part. */
  static void open(Model model, Path folder, String system, Runnable onClosed) {
    SwingUtilities.invokeLater(() -> {
      try {
        new ChatWindow(model, folder, system, onClosed).setVisible(true);
      } catch (IOException e) {
        JOptionPane.showMessageDialog(null, "Chats are kept in " + folder + ", which cannot be read: " + e.getMessage());
        onClosed.run();
      }
    });
  }
}
