using System;
using System.Collections.Generic;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Inlay
{
    /// <summary>A conversation in a session: each turn computes only what is new. A turn that fails or is cancelled leaves the messages as they
    /// were. Not thread-safe: one turn at a time.</summary>
    public sealed class Chat : IDisposable
    {
        private readonly List<ChatMessage> messages = new List<ChatMessage>();

        /// <param name="session">Disposed with the conversation.</param>
        /// <param name="messages">What was said before; null: nothing.</param>
        public Chat(Session session, IEnumerable<ChatMessage> messages = null)
        {
            Session = session ?? throw new ArgumentNullException(nameof(session));
            if (messages != null) this.messages.AddRange(messages);
        }

        /// <summary>Where it runs.</summary>
        public Session Session { get; private set; }

        /// <summary>What was said.</summary>
        public IReadOnlyList<ChatMessage> Messages { get { return messages; } }

        /// <summary>How to answer; read at each turn.</summary>
        public GenerateOptions Options { get; set; } = new GenerateOptions();

        /// <summary>Says something and waits for the answer.</summary>
        /// <exception cref="InlayException">As <see cref="Session.Generate"/>.</exception>
        public string Say(string content, CancellationToken cancellation = default(CancellationToken))
        {
            return Add(content, Session.Generate(With(content), Options, cancellation).Text);
        }

        /// <summary>The same, and blocks no thread.</summary>
        public async Task<string> SayAsync(string content, CancellationToken cancellation = default(CancellationToken))
        {
            return Add(content, (await Session.GenerateAsync(With(content), Options, cancellation).ConfigureAwait(false)).Text);
        }

        /// <summary>The same, piece by piece, when enumerated.</summary>
        public IEnumerable<string> Stream(string content, CancellationToken cancellation = default(CancellationToken))
        {
            var answer = new StringBuilder();
            foreach (TokenEvent next in Session.Stream(With(content), Options, cancellation))
            {
                if (next.Text.Length == 0) continue;
                answer.Append(next.Text);
                yield return next.Text;
            }
            Add(content, answer.ToString());
        }

        /// <summary>A conversation of its own that goes on from here.</summary>
        public Chat Fork() { return new Chat(Session.Fork(), messages) { Options = Options }; }

        /// <summary>Disposes the session.</summary>
        public void Dispose() { Session.Dispose(); }

        private Prompt With(string content)
        {
            return Prompt.FromChat(new List<ChatMessage>(messages) { ChatMessage.User(content) });
        }

        private string Add(string content, string answer)
        {
            messages.Add(ChatMessage.User(content));
            messages.Add(ChatMessage.Assistant(answer));
            return answer;
        }
    }
}
