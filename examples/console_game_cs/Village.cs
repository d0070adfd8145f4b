// The characters: what they know, hear, say and remember.
using System;
using System.Collections.Generic;
using System.IO;
using System.Linq;
using System.Text;
using Inlay;

internal sealed class Character : IDisposable
{
    internal readonly string Name, About;
    internal Session Session;
    internal Request Request;
    internal readonly StringBuilder Said = new StringBuilder();

    internal Character(string name, string about)
    {
        Name = name;
        About = about;
    }

    public void Dispose()
    {
        if (Request != null) Request.Dispose();
        if (Session != null) Session.Dispose();
    }
}

internal sealed class Village : IDisposable
{
    // The model knows this form; see its MODEL_CARD.md.
    private const string World =
        "<|bos|><|system|>The mill is in the north. The old tower is in the east. The harbor is in the south. The orchard is in the west. " +
        "The library is in the northwest. The guild hall is in the southeast.";
    private const TextFlags Special = TextFlags.ParseSpecial;

    private readonly Character[] characters =
    {
        new Character("Pia", "You are Pia, a cheerful guard in Wolfbrook. You sell: torch (8 coins), rope (5 coins)."),
        new Character("Sanjay", "You are Sanjay, a polite shopkeeper in Wolfbrook. You sell: red apple (4 coins), silver key (35 coins), warm blanket (12 coins)."),
        new Character("Thuy", "You are Thuy, a mysterious ferryman in Wolfbrook. You sell: oar (14 coins), fish (3 coins)."),
        new Character("Abdou", "You are Abdou, an old librarian in Wolfbrook. You sell: candle (2 coins), map (21 coins), violet book (40 coins).")
    };
    private readonly Model model;
    private readonly Prefix world;
    private Character current;

    internal Village(Model model)
    {
        this.model = model;
        current = characters[0];
        world = model.CreatePrefix("world", Prompt.FromText(World, Special));
        foreach (Character each in characters)
        {
            each.Session = world.Open();
            // Only taken in: nothing is to be said yet.
            each.Session.Generate(Prompt.FromText(" " + each.About + "<|end|>", Special), new GenerateOptions { MaxTokens = 0 });
        }
    }

    internal int Size { get { return characters.Length; } }
    internal long WorldTokens { get { return world.Info.Tokens; } }
    internal bool Speaking { get { return characters.Any(each => each.Request != null); } }

    public void Dispose()
    {
        foreach (Character each in characters) each.Dispose();
        world.Dispose();
    }

    internal void TurnTo(string name)
    {
        current = Find(name);
        Console.WriteLine("({0} looks at you.)", current.Name);
    }

    internal void Say(string text) { Ask(current, text); }

    internal void SayToAll(string text)
    {
        foreach (Character each in characters) Ask(each, text);
    }

    internal void Stop()
    {
        foreach (Character each in characters.Where(each => each.Request != null)) each.Request.Cancel();
    }

    // Prints what characters have said to its end: several may speak at once.
    internal void Listen()
    {
        foreach (Character each in characters.Where(each => each.Request != null))
        {
            while (each.Request.TryNext(out RequestEvent next))
            {
                if (next is TokenEvent tokens) each.Said.Append(tokens.Text);
            }
            FinishedEvent finished = each.Request.Finished;
            if (finished == null) continue;
            if (finished.Reason == FinishReason.Cancelled) each.Said.Append("..");
            Console.WriteLine("{0}: {1}", each.Name, finished.Reason == FinishReason.Error ? "(" + finished.Message + ")" : each.Said.ToString());
            each.Said.Clear();
            each.Request.Dispose();
            each.Request = null;
        }
    }

    internal void Save(string folder)
    {
        Directory.CreateDirectory(folder);
        foreach (Character each in characters) each.Session.Save(FileOf(folder, each));
        File.WriteAllText(Path.Combine(folder, "current.txt"), current.Name);
        Console.WriteLine("(saved to {0})", folder);
    }

    // All of them or, where one cannot be read, none.
    internal void Load(string folder)
    {
        var sessions = new List<Session>();
        try
        {
            string name = File.ReadAllText(Path.Combine(folder, "current.txt")).Trim();
            Character turned = Find(name);
            foreach (Character each in characters) sessions.Add(model.Restore(FileOf(folder, each)));
            for (int i = 0; i < characters.Length; ++i)
            {
                Session old = characters[i].Session;
                characters[i].Session = sessions[i];
                sessions[i] = old;
            }
            current = turned;
            Console.WriteLine("(loaded from {0}; {1} looks at you)", folder, name);
        }
        finally
        {
            sessions.ForEach(each => each.Dispose());
        }
    }

    private void Ask(Character character, string text)
    {
        int[] log = character.Session.GetTokens();
        var input = new List<int>();
        // One who was interrupted has not come to the end of what he said.
        if (log[log.Length - 1] != model.Tokenize("<|end|>", Special)[0]) input.AddRange(model.Tokenize("<|end|>", Special));
        input.AddRange(model.Tokenize("<|user|>", Special));
        // What the player types is text, whatever it spells.
        input.AddRange(model.Tokenize(text, TextFlags.None));
        input.AddRange(model.Tokenize("<|end|><|assistant|>", Special));
        const int answer = 60;
        if (log.Length + input.Count + answer > model.Info.MaxContext)
        {
            Console.WriteLine("({0} has heard too much for one day, and forgets.)", character.Name);
            character.Session.Rewind(log.ToList().IndexOf(model.Tokenize("<|end|>", Special)[0]) + 1);
        }
        character.Request = character.Session.Submit(Prompt.FromTokens(input), new GenerateOptions { MaxTokens = answer });
    }

    private Character Find(string name)
    {
        Character found = characters.FirstOrDefault(each => each.Name.Equals(name, StringComparison.OrdinalIgnoreCase));
        if (found == null) throw new ArgumentException("Nobody here is called " + name + ".");
        return found;
    }

    private static string FileOf(string folder, Character character) { return Path.Combine(folder, character.Name + ".session"); }
}
