using System;
using System.Collections.Generic;
using System.Linq;
using System.Text;
using Inlay.Native;
using static Inlay.Native.InlayNative;

namespace Inlay
{
    /// <summary>How text and tokens become each other.</summary>
    [Flags]
    public enum TextFlags
    {
        /// <summary>Text as it is.</summary>
        None = 0,
        /// <summary>What the tokenizer puts around a text (beginning and end of sequence).</summary>
        AddSpecial = INLAY_TEXT_ADD_SPECIAL,
        /// <summary>Text that spells a special token becomes that token. Leave it out for text that is not trusted.</summary>
        ParseSpecial = INLAY_TEXT_PARSE_SPECIAL,
        /// <summary>When tokens become text: leave special tokens out.</summary>
        SkipSpecial = INLAY_TEXT_SKIP_SPECIAL
    }

    /// <summary>One message of a conversation. Immutable.</summary>
    public sealed class ChatMessage
    {
        /// <param name="role">Such as <c>system</c>, <c>user</c>, <c>assistant</c>, <c>tool</c>.</param>
        /// <param name="content">What was said.</param>
        public ChatMessage(string role, string content)
        {
            Role = role ?? throw new ArgumentNullException(nameof(role));
            Content = content ?? throw new ArgumentNullException(nameof(content));
        }

        /// <summary>Who said it.</summary>
        public string Role { get; private set; }
        /// <summary>What was said.</summary>
        public string Content { get; private set; }

        /// <summary>A message that says who the model is to be.</summary>
        public static ChatMessage System(string content) { return new ChatMessage("system", content); }
        /// <summary>A message to the model.</summary>
        public static ChatMessage User(string content) { return new ChatMessage("user", content); }
        /// <summary>A message of the model's.</summary>
        public static ChatMessage Assistant(string content) { return new ChatMessage("assistant", content); }
    }

    /// <summary>What a generation or a named prefix begins with: a text (strings convert by themselves), tokens, or a conversation.
    /// Immutable.</summary>
    public sealed class Prompt
    {
        private readonly byte[] text, chat;
        private readonly int[] tokens;
        private readonly TextFlags flags;
        // Of encoders: a second text, and the types of tokens; null: none.
        private byte[] pair;
        private int[] types;

        private Prompt(byte[] text, int[] tokens, byte[] chat, TextFlags flags)
        {
            this.text = text;
            this.tokens = tokens;
            this.chat = chat;
            this.flags = flags;
        }

        private const TextFlags DefaultFlags = TextFlags.AddSpecial | TextFlags.ParseSpecial;

        /// <summary>Nothing: the generation goes on from the session's log.</summary>
        public static readonly Prompt Empty = new Prompt(null, new int[0], null, DefaultFlags);

        /// <summary>A text. <see cref="TextFlags.AddSpecial"/> counts only where the log was empty.</summary>
        public static Prompt FromText(string text, TextFlags flags = DefaultFlags)
        {
            if (text == null) throw new ArgumentNullException(nameof(text));
            return new Prompt(Utf8.GetBytes(text), null, null, flags);
        }

        /// <summary>Tokens as they are.</summary>
        public static Prompt FromTokens(IEnumerable<int> tokens)
        {
            if (tokens == null) throw new ArgumentNullException(nameof(tokens));
            return new Prompt(null, tokens.ToArray(), null, DefaultFlags);
        }

        /// <summary>A pair of texts, which in a request takes the place of the session's log; for encoders, and not for prefixes.</summary>
        public static Prompt FromPair(string text, string other)
        {
            if (other == null) throw new ArgumentNullException(nameof(other));
            Prompt prompt = FromText(text);
            prompt.pair = Utf8.GetBytes(other);
            return prompt;
        }

        /// <summary>Tokens and the type of each, of encoders that have several; not for prefixes.</summary>
        public static Prompt FromTokens(IEnumerable<int> tokens, IEnumerable<int> types)
        {
            if (types == null) throw new ArgumentNullException(nameof(types));
            Prompt prompt = FromTokens(tokens);
            prompt.types = types.ToArray();
            if (prompt.types.Length != prompt.tokens.Length)
                throw new ArgumentException("As many types as tokens.", nameof(types));
            return prompt;
        }

        /// <summary>A whole conversation, by the model's chat template. It replaces the session's log; what the two share from the start is
        /// not computed again.</summary>
        /// <param name="messages">The conversation.</param>
        public static Prompt FromChat(IEnumerable<ChatMessage> messages) { return FromChat(messages, false); }

        /// <summary>The same, of which the last message may go on.</summary>
        /// <param name="messages">The conversation.</param>
        /// <param name="continueFinalMessage">The last message goes on, instead of another one beginning.</param>
        public static Prompt FromChat(IEnumerable<ChatMessage> messages, bool continueFinalMessage)
        {
            if (messages == null) throw new ArgumentNullException(nameof(messages));
            var json = new StringBuilder("{\"messages\":[");
            string separator = "";
            foreach (ChatMessage message in messages)
            {
                json.Append(separator).Append("{\"role\":");
                Json.AppendString(json, message.Role);
                json.Append(",\"content\":");
                Json.AppendString(json, message.Content);
                json.Append('}');
                separator = ",";
            }
            json.Append(continueFinalMessage ? "],\"continue_final_message\":true}" : "]}");
            return FromChatJson(json.ToString());
        }

        /// <summary>A conversation as JSON: an object with <c>messages</c>, and optionally <c>tools</c>, <c>add_generation_prompt</c>,
        /// <c>continue_final_message</c> and any variable that the template reads.</summary>
        public static Prompt FromChatJson(string json)
        {
            if (json == null) throw new ArgumentNullException(nameof(json));
            return new Prompt(null, null, Utf8.GetBytes(json), DefaultFlags);
        }

        /// <summary>A text.</summary>
        public static implicit operator Prompt(string text) { return FromText(text); }

        internal void Write(inlay_request_options native, Pins pins)
        {
            native.text = pins.Array(text);
            native.text_bytes = Length(text);
            native.tokens = pins.Array(tokens);
            native.num_tokens = Length(tokens);
            native.chat = pins.Array(chat);
            native.chat_bytes = Length(chat);
            native.text_flags = (uint)flags;
            native.text_pair = pins.Array(pair);
            native.text_pair_bytes = Length(pair);
            native.token_types = pins.Array(types);
        }

        internal void Write(inlay_prefix_options native, Pins pins)
        {
            if (pair != null || types != null) throw new ArgumentException("A prefix has no pair of texts and no types.");
            native.text = pins.Array(text);
            native.text_bytes = Length(text);
            native.tokens = pins.Array(tokens);
            native.num_tokens = Length(tokens);
            native.chat = pins.Array(chat);
            native.chat_bytes = Length(chat);
            native.text_flags = (uint)flags;
        }

        private static ulong Length(Array values) { return values == null ? 0 : (ulong)values.Length; }
    }

    internal static class Json
    {
        // RFC 8259, section 7.
        internal static void AppendString(StringBuilder json, string value)
        {
            json.Append('"');
            foreach (char c in value)
            {
                if (c == '"' || c == '\\') json.Append('\\').Append(c);
                else if (c < ' ') json.Append("\\u").Append(((int)c).ToString("x4"));
                else json.Append(c);
            }
            json.Append('"');
        }
    }
}
