package doctor

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/explain/ports"
)

// few is the number of names that a finding lists at most.
const few = 5

// name returns a port with its owner, e.g. "80/tcp of web".
func name(p ports.Port) string {
	text := fmt.Sprintf("%s/%s", p.Ports, p.Proto)
	switch {
	case p.Container != nil && p.Container.Name != "":
		text += " of " + p.Container.Name
	case p.Service != nil && p.Service.Name != "":
		text += " of service " + p.Service.Name
	case p.Sandbox != "":
		text += " of " + p.Sandbox
	case p.Process != nil:
		text += " of " + p.Process.Command
	}
	return text
}

// portsThat returns the ports for which is returns true.
func (h Host) portsThat(is func(ports.Port) bool) []ports.Port {
	return slices.DeleteFunc(slices.Clone(h.Ports), func(p ports.Port) bool { return !is(p) })
}

// names lists several ports.
func names(all []ports.Port) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, name(p))
	}
	return list(texts)
}

// list joins the first few texts and counts the rest.
func list(texts []string) string {
	if len(texts) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:few], ", "), len(texts)-few)
	}
	return strings.Join(texts, ", ")
}

// count returns a number with the noun that it counts.
func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
