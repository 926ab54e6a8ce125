package static

import (
	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model/gateway"
)

// Declared returns the settings that a tree of fairlead.yaml describes. key is the key of the
// tree's root, for the mistakes. Settings that would have no effect are mistakes, too.
func Declared(n *tree.Node, key string) (gateway.Static, []tree.Mistake) {
	var all allSettings
	mistakes := tree.Decode(n, key, &all)
	faulty := len(mistakes) > 0
	add := func(below, text string) {
		mistakes = append(mistakes, tree.Mistake{Key: tree.Join(key, below), Line: n.LineOf(below), Text: text})
	}
	if len(all.EntryPoints) == 0 {
		add("entryPoints", "want at least one entry point, such as web: {address: \":80\"}")
		return gateway.Static{}, mistakes
	}
	if p := value(all.Providers); p.Any() && p != (gateway.Providers{Docker: p.Docker}) &&
		p != (gateway.Providers{Swarm: p.Swarm}) {
		add("providers", "want docker or swarm: write the content of other files below gateway")
	}
	b := &builder{}
	s := b.build(&all)
	if faulty {
		return s, mistakes // what the builder finds may be a consequence
	}
	for _, m := range b.mistakes {
		add(m.Key, m.Text)
	}
	for _, note := range b.notes {
		add(note.Key, note.Text)
	}
	return s, mistakes
}
