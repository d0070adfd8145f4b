package dev.inlay;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Locale;

/**
 * Loads the native library: the file that the property {@value #PROPERTY} names, or the one in the jar. That one is unpacked to a
 * new folder that only this user can enter, and the files are deleted as soon as they are loaded.
 */
final class NativeLoader {
  static final String PROPERTY = "dev.inlay.library";
  /** In the order in which they are unpacked; the last one is loaded and finds the others beside it. */
  private static final String[] FILES = {"libinlay.so.0", "libinlay_java.so"};

  private static boolean loaded;

  private NativeLoader() {}

  /** @throws UnsatisfiedLinkError saying what is missing and what can be done */
  static synchronized void load() {
    if (loaded) return;
    String chosen = System.getProperty(PROPERTY);
    if (chosen != null) {
      System.load(Path.of(chosen).toAbsolutePath().toString());
    } else {
      loadFromJar();
    }
    loaded = true;
    String from = chosen == null ? "the jar" : chosen;
    checkAbi(InlayCJNI.inlay_abi_version(), InlayCJNI.inlay_java_abi(), from);
  }

  /** A library serves those made for its ABI or an earlier one. */
  static void checkAbi(long found, long wanted, String from) {
    if (found >= wanted) return;
    throw new UnsatisfiedLinkError("The Inlay library that was loaded from " + from + " has ABI version " + found
        + ", and this binding needs " + wanted + " or later: install a newer library, or unset " + PROPERTY
        + " to use the one in the jar.");
  }

  private static void loadFromJar() {
    String folder = "native/" + platform() + "/";
    Path[] unpacked = new Path[FILES.length];
    Path directory = null;
    try {
      directory = Files.createTempDirectory("inlay-", PosixFilePermissions.asFileAttribute(
          PosixFilePermissions.fromString("rwx------")));
      for (int i = 0; i < FILES.length; ++i) {
        try (InputStream in = NativeLoader.class.getResourceAsStream(folder + FILES[i])) {
          if (in == null) {
            throw new UnsatisfiedLinkError("The jar has no " + folder + FILES[i] + ": set the property " + PROPERTY
                + " to the path of libinlay_java.so for this platform.");
          }
          unpacked[i] = directory.resolve(FILES[i]);
          Files.copy(in, unpacked[i]);
        }
      }
      load(unpacked[FILES.length - 1]);
    } catch (IOException | UnsupportedOperationException e) {
      UnsatisfiedLinkError error = new UnsatisfiedLinkError("The native library could not be unpacked: " + e
          + ". Set java.io.tmpdir to a folder with room, or " + PROPERTY + " to the path of libinlay_java.so.");
      error.initCause(e);
      throw error;
    } finally {
      delete(unpacked, directory);
    }
  }

  private static void load(Path library) {
    try {
      System.load(library.toString());
    } catch (UnsatisfiedLinkError e) {
      UnsatisfiedLinkError error = new UnsatisfiedLinkError(e.getMessage() + ". If code cannot be loaded from "
          + library.getParent().getParent() + ", set java.io.tmpdir to a folder where it can, or " + PROPERTY
          + " to the path of libinlay_java.so.");
      error.initCause(e);
      throw error;
    }
  }

  /** What is mapped stays mapped. */
  private static void delete(Path[] files, Path directory) {
    for (Path file : files) {
      if (file != null) file.toFile().delete();
    }
    if (directory != null) directory.toFile().delete();
  }

  private static String platform() {
    String system = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String machine = System.getProperty("os.arch");
    return system + "-" + (machine.equals("amd64") ? "x86-64" : machine);
  }
}
