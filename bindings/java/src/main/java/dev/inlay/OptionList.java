package dev.inlay;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** The settings of a fluent option class, put on a struct that has the library's defaults. */
final class OptionList<T> {
  private final List<Consumer<T>> settings = new ArrayList<>();

  OptionList() {}

  OptionList(OptionList<T> other) {
    settings.addAll(other.settings);
  }

  void add(Consumer<T> setting) {
    settings.add(setting);
  }

  void applyTo(T struct) {
    for (Consumer<T> setting : settings) setting.accept(struct);
  }
}
