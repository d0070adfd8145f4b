using System;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>How a named prefix stands.</summary>
    public struct PrefixInfo
    {
        internal PrefixInfo(inlay_prefix_info native)
        {
            Pinned = native.pinned != 0;
            Tokens = Numbers.Long(native.num_tokens);
            CachedTokens = Numbers.Long(native.num_cached);
            KvBytes = Numbers.Long(native.kv_bytes);
        }

        /// <summary>Its KV is kept.</summary>
        public bool Pinned { get; }
        /// <summary>Tokens.</summary>
        public long Tokens { get; }
        /// <summary>Of these, tokens whose KV is in memory.</summary>
        public long CachedTokens { get; }
        /// <summary>Bytes of KV that pinning it holds.</summary>
        public long KvBytes { get; }
    }

    /// <summary>A handle on tokens that many sessions begin with, under a name. Thread-safe. When the last handle is disposed or dropped the
    /// prefix is forgotten; sessions opened from it go on.</summary>
    public sealed class Prefix : IDisposable
    {
        private readonly PrefixHandle handle;

        internal Prefix(Model model, PrefixHandle handle)
        {
            Model = model;
            this.handle = handle;
        }

        /// <summary>The model it is of.</summary>
        public Model Model { get; private set; }

        /// <summary>How it stands.</summary>
        public PrefixInfo Info
        {
            get
            {
                using (var native = new inlay_prefix_info())
                {
                    Errors.Check(inlay_prefix_get_info(handle, native, out IntPtr error), error);
                    return new PrefixInfo(native);
                }
            }
        }

        /// <summary>A session whose log is the prefix.</summary>
        public Session Open()
        {
            Errors.Check(inlay_prefix_open(handle, out SessionHandle session, out IntPtr error), error);
            return new Session(Model, session);
        }

        /// <summary>Computes and keeps its KV, or lets it go.</summary>
        /// <exception cref="InlayResourceException">It does not fit.</exception>
        public void Pin(bool pinned = true) { Errors.Check(inlay_prefix_pin(handle, pinned ? 1 : 0, out IntPtr error), error); }

        /// <summary>Gives this handle back.</summary>
        public void Dispose() { handle.Dispose(); }
    }
}
