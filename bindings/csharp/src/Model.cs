using System;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>What a model is.</summary>
    public sealed class ModelInfo
    {
        internal ModelInfo(inlay_model_info native)
        {
            Architecture = Utf8.Copy(native.architecture);
            Layers = (int)native.num_layers;
            VocabularySize = Numbers.Long(native.vocab_size);
            HiddenSize = Numbers.Long(native.hidden_size);
            MaxContext = Numbers.Long(native.max_context);
            Parameters = Numbers.Long(native.num_parameters);
            WeightBytes = Numbers.Long(native.weight_bytes);
            BytesPerDecode = Numbers.Long(native.bytes_per_decode);
            KvBytesPerToken = Numbers.Long(native.kv_bytes_per_token);
            KvCapacityTokens = Numbers.Long(native.kv_capacity_tokens);
            if (native.bos_token >= 0) BosToken = native.bos_token;
            if (native.eos_token >= 0) EosToken = native.eos_token;
            HasTokenizer = native.has_tokenizer != 0;
            HasChatTemplate = native.has_chat_template != 0;
            EmbeddingSize = Numbers.Long(native.embedding_size);
        }

        /// <summary>As config.json has it.</summary>
        public string Architecture { get; private set; }
        /// <summary>Layers.</summary>
        public int Layers { get; private set; }
        /// <summary>Tokens there are.</summary>
        public long VocabularySize { get; private set; }
        /// <summary>Elements of the residual stream.</summary>
        public long HiddenSize { get; private set; }
        /// <summary>Tokens of the longest session.</summary>
        public long MaxContext { get; private set; }
        /// <summary>Parameters.</summary>
        public long Parameters { get; private set; }
        /// <summary>Bytes of weights.</summary>
        public long WeightBytes { get; private set; }
        /// <summary>Bytes of weights read for one token at batch 1.</summary>
        public long BytesPerDecode { get; private set; }
        /// <summary>Bytes of KV for a token.</summary>
        public long KvBytesPerToken { get; private set; }
        /// <summary>Tokens that the KV cache holds.</summary>
        public long KvCapacityTokens { get; private set; }
        /// <summary>The token a text begins with, if there is one.</summary>
        public int? BosToken { get; private set; }
        /// <summary>The first end-of-sequence token, if there is one.</summary>
        public int? EosToken { get; private set; }
        /// <summary>Whether text can be used; tokens always can.</summary>
        public bool HasTokenizer { get; private set; }
        /// <summary>Whether <see cref="Prompt.FromChat(System.Collections.Generic.IEnumerable{ChatMessage})"/> works without a template of its own.</summary>
        public bool HasChatTemplate { get; private set; }
        /// <summary>Elements of an embedding as the model's files say, through their Dense modules; with another pooling it has <see cref="HiddenSize"/>. 0: the files ask for what is not supported.</summary>
        public long EmbeddingSize { get; private set; }
    }

    /// <summary>Weights, tokenizer and chat template of one model. Thread-safe. Its memory is freed when it and all of its sessions are
    /// disposed.</summary>
    public sealed partial class Model : IDisposable
    {
        private readonly ModelHandle handle;

        internal Model(Engine engine, ModelHandle handle)
        {
            Engine = engine;
            this.handle = handle;
            using (var native = new inlay_model_info())
            {
                Errors.Check(inlay_model_get_info(handle, native, out IntPtr error), error);
                Info = new ModelInfo(native);
            }
        }

        /// <summary>The engine it was loaded by.</summary>
        public Engine Engine { get; private set; }

        /// <summary>What it is.</summary>
        public ModelInfo Info { get; private set; }

        /// <summary>Gives the model back; its sessions go on.</summary>
        public void Dispose() { handle.Dispose(); }

        /// <summary>An empty session. It costs nothing until its first request.</summary>
        /// <exception cref="InlayUnsupportedException">The model was loaded without weights.</exception>
        public Session CreateSession()
        {
            Errors.Check(inlay_session_create(handle, out SessionHandle session, out IntPtr error), error);
            return new Session(this, session);
        }

        /// <summary>Options with the sampling settings of the model's generation_config.json, where it has them.</summary>
        public GenerateOptions GetRecommendedOptions()
        {
            using (var native = new inlay_request_options())
            {
                Errors.Check(inlay_model_request_options(handle, native, out IntPtr error), error);
                return GenerateOptions.Read(native);
            }
        }

        /// <summary>The tokens of a text. Halves of surrogate pairs are read as U+FFFD.</summary>
        /// <exception cref="InlayUnsupportedException">The model has no tokenizer.</exception>
        public int[] Tokenize(string text, TextFlags flags = TextFlags.AddSpecial | TextFlags.ParseSpecial)
        {
            if (text == null) throw new ArgumentNullException(nameof(text));
            byte[] bytes = Utf8.GetBytes(text);
            // A token has at least a byte, but for the few around the text: the second try is rare.
            var tokens = new int[bytes.Length + 8];
            while (true)
            {
                ulong count;
                using (var pins = new Pins())
                {
                    Errors.Check(inlay_model_tokenize(handle, pins.Array(bytes), (ulong)bytes.Length, (uint)flags, pins.Array(tokens),
                                                      (ulong)tokens.Length, out count, out IntPtr error), error);
                }
                bool all = count <= (ulong)tokens.Length;
                Array.Resize(ref tokens, checked((int)count));
                if (all) return tokens;
            }
        }

        /// <summary>The text of tokens. Where they are a part of a character only, that is U+FFFD.</summary>
        /// <exception cref="InlayArgumentException">A token is outside the vocabulary.</exception>
        public string Detokenize(int[] tokens, TextFlags flags = TextFlags.None) { return Utf8.GetString(DetokenizeBytes(tokens, flags)); }

        /// <summary>The bytes of tokens.</summary>
        /// <exception cref="InlayArgumentException">A token is outside the vocabulary.</exception>
        public byte[] DetokenizeBytes(int[] tokens, TextFlags flags = TextFlags.None)
        {
            if (tokens == null) throw new ArgumentNullException(nameof(tokens));
            using (var pins = new Pins())
            {
                Errors.Check(inlay_model_detokenize(handle, pins.Array(tokens), (ulong)tokens.Length, (uint)flags, out IntPtr text,
                                                    out IntPtr error), error);
                return Buffers.TakeBytes(text);
            }
        }

        /// <summary>What the chat template makes of a conversation.</summary>
        /// <param name="json">An object with <c>messages</c>, <c>tools</c>, <c>add_generation_prompt</c> and any variable that the template
        /// reads.</param>
        /// <exception cref="InlayException">The template refuses it, or there is none.</exception>
        public string RenderChat(string json) { return Render(handle, json); }

        /// <summary>The same without a model; <c>template</c> is in the JSON.</summary>
        public static string RenderTemplate(string json)
        {
            Library.Load();
            return Render(ModelHandle.None, json);
        }

        /// <summary>Gives tokens that many sessions begin with a name; pinned, they are computed once, in the engine's own time, and their KV
        /// stays.</summary>
        /// <param name="name">Unique for this model.</param>
        /// <param name="prompt">The tokens.</param>
        /// <param name="pin">False: only the name and the tokens.</param>
        /// <param name="budgetBytes">Of KV that it may pin; null: the whole cache.</param>
        /// <exception cref="InlayStateException">The model has a prefix of that name.</exception>
        /// <exception cref="InlayResourceException">Pinned, it would not fit.</exception>
        public Prefix CreatePrefix(string name, Prompt prompt, bool pin = true, long? budgetBytes = null)
        {
            if (name == null) throw new ArgumentNullException(nameof(name));
            if (prompt == null) throw new ArgumentNullException(nameof(prompt));
            using (var native = new inlay_prefix_options())
            using (var pins = new Pins())
            {
                prompt.Write(native, pins);
                native.pin = pin ? 1u : 0;
                if (budgetBytes is long budget) native.budget_bytes = Numbers.ULong(budget, nameof(budgetBytes));
                Errors.Check(inlay_prefix_create(handle, pins.CString(name, nameof(name)), native, out PrefixHandle prefix,
                                                 out IntPtr error), error);
                return new Prefix(this, prefix);
            }
        }

        /// <summary>Another handle on the prefix of that name.</summary>
        /// <exception cref="InlayNotFoundException">There is none.</exception>
        public Prefix FindPrefix(string name)
        {
            if (name == null) throw new ArgumentNullException(nameof(name));
            using (var pins = new Pins())
            {
                Errors.Check(inlay_prefix_find(handle, pins.CString(name, nameof(name)), out PrefixHandle prefix, out IntPtr error), error);
                return new Prefix(this, prefix);
            }
        }

        /// <summary>A session that goes on with exactly the tokens that the saved one would have. Where KV is damaged or of another model, it is
        /// computed again. Trust a snapshot as you trust a model.</summary>
        /// <exception cref="InlayIOException">The file cannot be read, or is damaged beyond repair.</exception>
        /// <exception cref="InlayArgumentException">No snapshot, one of another vocabulary, or too long for the model.</exception>
        public Session Restore(string path) { return Restore(path, out RestoreInfo info); }

        /// <summary>The same, and how much of the KV came back.</summary>
        public Session Restore(string path, out RestoreInfo info)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            using (var native = new inlay_restore_info())
            using (var pins = new Pins())
            {
                Errors.Check(inlay_session_restore(handle, pins.CString(path, nameof(path)), out SessionHandle session, native,
                                                   out IntPtr error), error);
                info = new RestoreInfo(native);
                return new Session(this, session);
            }
        }

        /// <summary>The same from <see cref="Session.Save()"/>'s bytes.</summary>
        public Session Restore(byte[] snapshot) { return Restore(snapshot, out RestoreInfo info); }

        /// <summary>The same, and how much of the KV came back.</summary>
        public Session Restore(byte[] snapshot, out RestoreInfo info)
        {
            if (snapshot == null) throw new ArgumentNullException(nameof(snapshot));
            using (var native = new inlay_restore_info())
            using (var pins = new Pins())
            {
                Errors.Check(inlay_session_restore_buffer(handle, pins.Array(snapshot), (ulong)snapshot.Length, out SessionHandle session,
                                                          native, out IntPtr error), error);
                info = new RestoreInfo(native);
                return new Session(this, session);
            }
        }

        /// <summary>Writes all that comes in for this model, and every step, to a file that only its owner can read: it holds the prompts.</summary>
        /// <exception cref="InlayStateException">Requests run, it records already, or a prefix is pinned.</exception>
        public void StartRecording(string path)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            using (var pins = new Pins())
            {
                Errors.Check(inlay_model_record_start(handle, pins.CString(path, nameof(path)), out IntPtr error), error);
            }
        }

        /// <summary>Ends the recording; throws why it ended before, where it did.</summary>
        public void StopRecording() { Errors.Check(inlay_model_record_stop(handle, out IntPtr error), error); }

        /// <summary>Serves a recording again and compares every plan and token. No other step of the engine runs meanwhile.</summary>
        /// <returns>A report as JSON; <c>same</c> is true when nothing differs.</returns>
        public string Replay(string path)
        {
            if (path == null) throw new ArgumentNullException(nameof(path));
            using (var pins = new Pins())
            {
                Errors.Check(inlay_model_replay(handle, pins.CString(path, nameof(path)), out IntPtr report, out IntPtr error), error);
                return Buffers.TakeText(report);
            }
        }

        private static string Render(ModelHandle handle, string json)
        {
            if (json == null) throw new ArgumentNullException(nameof(json));
            byte[] bytes = Utf8.GetBytes(json);
            using (var pins = new Pins())
            {
                Errors.Check(inlay_chat_render(handle, pins.Array(bytes), (ulong)bytes.Length, out IntPtr text, out IntPtr error), error);
                return Buffers.TakeText(text);
            }
        }
    }
}
