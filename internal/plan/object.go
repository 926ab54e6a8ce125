package plan

import (
	"slices"
	"strings"
)

// Object is one object that must exist. Implementations are values: if two objects
// with the same Key are Equal, nothing needs to be done. All that the rest of the
// program needs to know about a kind of object is either here or one of the facts
// below, which are optional methods.
type Object interface {
	// Key identifies the object within a plan: its kind and its name.
	Key() string
	// Add returns the shell commands that create the object, or change it to this
	// state.
	Add() []string
	// Del returns the shell commands that remove it. It is empty if the object
	// disappears with another object.
	Del() []string
}

// keyed returns the key of an object that may be in the namespace of a sandbox. In the
// engine's namespace, netns is empty, and the key names none.
func keyed(kind, netns, name string) string {
	if netns == "" {
		return kind + " " + name
	}
	return kind + " " + netns + " " + name
}

// Equal reports whether two objects are in the same state.
func Equal(a, b Object) bool {
	if lists, ok := a.(interface{ equal(Object) bool }); ok {
		return lists.equal(b)
	}
	return a == b
}

// Group identifies objects that are changed in one transaction and read together.
type Group string

// The groups. The group of an nft table has the key of the table's object.
const (
	// Single is the group of the objects that are changed one at a time.
	Single Group = ""
	// GroupTable is the nft table of publishes.
	GroupTable Group = "nft table"
	// GroupServices is the nft table of services.
	GroupServices Group = "nft table of services"
	// GroupEBPF is the eBPF table: port mappings, grants and services.
	GroupEBPF Group = "ebpf table"
	// GroupProxy is the user-space proxy. Package kernel does not know its objects.
	GroupProxy Group = "proxy"
)

// IsTable reports whether the group is an nft table.
func (g Group) IsTable() bool { return g == GroupTable || g == GroupServices }

// joins reports whether steps on objects of the two groups are one transaction.
func (g Group) joins(o Group) bool { return g != Single && (g == o || g.IsTable() && o.IsTable()) }

// GroupOf returns the object's group.
func GroupOf(o Object) Group {
	if g, ok := o.(interface{ group() Group }); ok {
		return g.group()
	}
	return Single
}

// isElement reports whether the object is a part of an nft table.
func isElement(o Object) bool {
	g := GroupOf(o)
	return g.IsTable() && o.Key() != string(g)
}

// KindOf returns the kind of an object, e.g. "link" or "nft element".
func KindOf(o Object) string {
	if GroupOf(o) == GroupTable && isElement(o) {
		return "nft element"
	}
	words := strings.Fields(o.Key())
	if words[0] == "bpf" || words[0] == "nft" {
		return words[0] + " " + words[1]
	}
	return words[0]
}

// NetnsOf returns the path of the network namespace that the object is in. It is
// empty for the engine's namespace.
func NetnsOf(o Object) string {
	if l, ok := o.(interface{ netns() string }); ok {
		return l.netns()
	}
	return ""
}

// InSandbox returns the sandbox and the name of a link whose ends are all in a
// sandbox, so that no part of it is visible on the host. It returns false for other
// objects.
func InSandbox(o Object) (netns, name string, ok bool) {
	if l, is := o.(interface{ inSandbox() (string, string) }); is {
		netns, name = l.inSandbox()
	}
	return netns, name, netns != ""
}

// linker is an object that consists of one or more network interfaces.
type linker interface {
	// Ends returns the interfaces, each as "NETNS NAME".
	Ends() []string
	// adjusts reports whether the link can be changed from old to this state
	// without being recreated.
	adjusts(old Object) bool
}

// Ends returns the interfaces that the object consists of, each as "NETNS NAME";
// nil if there are none.
func Ends(o Object) []string {
	if l, ok := o.(linker); ok {
		return l.Ends()
	}
	return nil
}

// based is an object that depends on a link.
type based interface{ base() string }

// Base returns the link that the object depends on, in the form of Ends; empty if
// it depends on none.
func Base(o Object) string {
	if b, ok := o.(based); ok {
		return b.base()
	}
	return ""
}

// DependsOn reports whether the object depends on one of the links, which are in the form of Ends.
func DependsOn(o Object, links map[string]bool) bool {
	if len(links) == 0 {
		return false
	}
	if several, ok := o.(interface{ bases() []string }); ok {
		return slices.ContainsFunc(several.bases(), func(base string) bool { return links[base] })
	}
	return links[Base(o)]
}

// changer is an object for which Add is not enough to change it from another state.
type changer interface{ change(old Object) []string }

// settable is a link whose settings are changed as those of a new link are set.
type settable interface {
	Object
	linker
	// set returns the commands that both a new link and a changed one need.
	set() []string
}

// OrNil returns o if it exists, and nil otherwise.
func OrNil(o Object, exists bool) Object {
	if exists {
		return o
	}
	return nil
}
