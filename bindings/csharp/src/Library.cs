using System;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>The native library itself. Thread-safe.</summary>
    public static class Library
    {
        private static volatile bool loaded;

        /// <summary>The version of the library that is loaded, such as <c>0.1.0</c>.</summary>
        /// <exception cref="DllNotFoundException">It cannot be loaded; the message says where it is looked for.</exception>
        public static string Version
        {
            get
            {
                Load();
                return Utf8.Copy(inlay_version());
            }
        }

        /// <summary>The ABI version of the library that is loaded: at least that of this assembly.</summary>
        public static int AbiVersion
        {
            get
            {
                Load();
                return (int)inlay_abi_version();
            }
        }

        /// <summary>What a model path holds, without loading weights: JSON with architecture, configuration, tensors, formats, and the
        /// memory each backend needs.</summary>
        /// <param name="path">As for <see cref="Engine.LoadModel(string, ModelOptions, IProgress{LoadProgress}, System.Threading.CancellationToken)"/>.</param>
        /// <exception cref="InlayException">The path holds no model that this library reads.</exception>
        public static string Inspect(string path)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            Load();
            using (var pins = new Pins())
            {
                Errors.Check(inlay_model_inspect(pins.CString(path, nameof(path)), out IntPtr json, out IntPtr error), error);
                return Buffers.TakeText(json);
            }
        }

        // Called before anything else is. Not a static constructor: what that throws is hidden in a TypeInitializationException, for good.
        internal static void Load()
        {
            if (loaded) return;
            uint found;
            try
            {
                found = inlay_abi_version();
            }
            catch (Exception e) when (e is DllNotFoundException || e is EntryPointNotFoundException || e is BadImageFormatException)
            {
                throw new DllNotFoundException(
                    "Inlay's native libraries, libinlay_csharp.so and libinlay.so.0 beside it, cannot be loaded: put them where " +
                    "Inlay.dll is, into runtimes/<rid>/native of the package, or on LD_LIBRARY_PATH. " + e.Message, e);
            }
            if (found < INLAY_ABI_VERSION)
            {
                throw new InlayUnsupportedException(
                    "The libinlay that is loaded (" + Utf8.Copy(inlay_version()) + ") has ABI version " + found + "; this Inlay.dll needs " +
                    INLAY_ABI_VERSION + " or newer. Update libinlay.so.0, or use the Inlay.dll that came with it.");
            }
            loaded = true;
        }
    }
}
