// Package spec computes desired states: what a set of files declares, or a request asks
// for, together with what is desired already. It finds the mistakes. Its functions
// change nothing.
package spec

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/model"
)

// Located is the sandbox of a declared attachment, or why it cannot be used.
type Located struct {
	Sandbox
	Err error
}

// Draft applies a Spec to a desired state, and finds all mistakes. While it works,
// desired has the earlier parts of the Spec, so that names, interfaces and addresses
// are chosen as if these were already applied.
type Draft struct {
	// Notes are messages for the user.
	Notes []string
	// Names are the names of the declared attachments; empty for one with a mistake.
	Names []string
	// CheckGateway returns the mistakes in a gateway, except those in what it takes from
	// the rest of the desired state, and notes. It is nil if the daemon runs no gateway.
	CheckGateway func(model.Gateway) (api.Mistakes, []string)
	// Declared are the names of the attachments, publishes (model.Publish.String) and
	// services that the Spec declares: an earlier problem of theirs is void.
	Declared Declared

	before, desired model.Desired
	origin          model.Origin
	spec            api.Spec
	found           []Located
	// overlaps returns an error if a new network overlaps a subnet of the host.
	overlaps func(model.Desired, model.Network) error
	mistakes api.Mistakes
	// wrong are networks with mistakes. Their attachments are not checked.
	wrong     map[string]bool
	unchanged []unchanged
}

// Declared are the objects of a Spec, by name.
type Declared struct{ Attachments, Publishes, Services []string }

// NewDraft returns a draft of a Spec for a desired state. found are the sandboxes of the
// declared attachments. overlaps returns an error if a network of the desired state
// overlaps a subnet that the host reaches without Fairlead.
func NewDraft(w model.Desired, s api.Spec, found []Located, overlaps func(model.Desired, model.Network) error) *Draft {
	return &Draft{before: w, desired: w, origin: OriginOf(s), spec: s, found: found, overlaps: overlaps,
		Names: make([]string, len(found)), wrong: map[string]bool{}}
}

// OriginOf returns the origin of what a Spec declares.
func OriginOf(s api.Spec) model.Origin {
	if s.Edit != nil {
		return model.FromCommand
	}
	return model.FileSet(s.Set)
}

// Origin returns the origin of what the Spec declares.
func (t *Draft) Origin() model.Origin { return t.origin }

func (t *Draft) mistake(at string, err error) {
	t.mistakes = append(t.mistakes, api.Mistake{At: at, Text: err.Error()})
}

// prune returns the desired state without the attachments that the set no longer
// declares.
func (t *Draft) prune() model.Desired {
	gone, matched := map[string]bool{}, map[string]bool{}
	for i, a := range t.spec.Attachments {
		if have, ok := t.matches(a, t.found[i].Ref, matched); ok {
			matched[have] = true
		}
	}
	for _, a := range t.desired.Attachments {
		gone[a.Name] = t.declaredBefore(a.Origin, edited(t.spec.Edit).attachment, a.Name) && !matched[a.Name]
	}
	return t.desired.WithoutAttachments(gone)
}

// matches returns the existing attachment of a declared one: the one with the same
// name or, without a name, interface; and with the same sandbox and network.
func (t *Draft) matches(a api.Declared, ref string, taken map[string]bool) (string, bool) {
	network := a.Network
	if a.Device != "" {
		network = deviceNetwork(a.Device, a.PKey)
	}
	for _, have := range t.desired.Attachments {
		named := a.Name == have.Name || a.Name == "" && (a.Interface == "" || a.Interface == have.Interface)
		if named && have.Ref == ref && have.Network == network && !taken[have.Name] {
			return have.Name, true
		}
	}
	return "", false
}

// network adds one network to the draft.
func (t *Draft) network(i int) {
	n, at := t.spec.Networks[i], fmt.Sprintf("networks[%d]", i)
	n.Origin = t.origin
	if slices.ContainsFunc(t.spec.Networks[:i], func(o model.Network) bool { return o.Name == n.Name }) {
		t.mistake(at, fmt.Errorf("network %s is declared twice: remove one", n.Name))
		return
	}
	if err := t.tryNetwork(n); err != nil {
		t.wrong[n.Name] = true
		t.mistake(at, err)
	}
}

func (t *Draft) tryNetwork(n model.Network) error {
	if n.Traits().NoLink {
		return fmt.Errorf("network %s: driver %s attaches no sandboxes: choose another", n.Name, n.Driver)
	}
	if err := (model.State{Networks: []model.Network{n}}).Validate(); err != nil {
		return err
	}
	if err := t.overlaps(t.desired, n); err != nil {
		return err
	}
	have, known := t.desired.Network(n.Name)
	switch {
	case known && t.unedited(have.Origin, edited(t.spec.Edit).network, n.Name):
		return notInFile("network " + n.Name)
	case known && have.Origin != t.origin && !have.Equal(ownedNetwork(n, have)) && !t.takes(have.Origin):
		return DiffersFromFile("network "+n.Name, have.Origin, "`fairlead network rm "+n.Name+"`")
	case known && have.Origin != t.origin && !t.adopts(have.Origin):
		t.noteUnchanged("network", n.Name, have.Origin)
		return nil
	case known && have.Driver != n.Driver:
		todo := "apply the files without it first"
		if have.Origin == model.FromCommand {
			todo = "remove it with `fairlead network rm " + n.Name + "` first"
		}
		return fmt.Errorf("network %s already exists with driver %s: %s, or give the new network another name", n.Name,
			have.Driver, todo)
	}
	t.desired = t.desired.WithNetwork(n)
	return nil
}

// pruneNetworks removes the networks that the set no longer declares.
func (t *Draft) pruneNetworks() {
	w := &t.desired
	left := func(n model.Network) bool {
		return t.declaredBefore(n.Origin, edited(t.spec.Edit).network, n.Name) && !slices.ContainsFunc(t.spec.Networks,
			func(o model.Network) bool { return o.Name == n.Name })
	}
	for _, n := range w.Networks {
		var users []string
		for _, a := range w.Attachments {
			if left(n) && a.Network == n.Name && !t.declaredBefore(a.Origin, edited(t.spec.Edit).attachment, a.Name) {
				users = append(users, a.Name)
			}
		}
		if len(users) > 0 {
			which := "of another origin"
			if t.spec.Edit != nil {
				which = "that are not in the file"
			}
			t.mistake("", fmt.Errorf("network %s is no longer declared, but has attachments %s (%s): detach them first, or "+
				"declare it", n.Name, which, strings.Join(users, ", ")))
		}
	}
	w.Networks = slices.DeleteFunc(slices.Clone(w.Networks), left)
}

// attachment adds one attachment and its publishes to the draft.
func (t *Draft) attachment(i int) {
	a, at := t.spec.Attachments[i], fmt.Sprintf("attachments[%d]", i)
	if t.found[i].Err != nil {
		t.mistake(at, t.found[i].Err)
		return
	}
	if t.wrong[a.Network] {
		return
	}
	next, made, err := t.compose(a, t.found[i].Sandbox)
	if err == nil && slices.Contains(t.Names, made.Name) {
		err = fmt.Errorf("attachment %s is declared twice: remove one, or give each a name and an interface", made.Name)
	}
	if err == nil {
		next, err = t.unlessOther(next, made)
	}
	if err != nil {
		t.mistake(at, err)
		return
	}
	t.Names[i], t.desired = made.Name, next
	t.Declared.Attachments = append(t.Declared.Attachments, made.Name)
	t.publishes(i, at)
}

// compose fills in the values that a declared attachment leaves empty, as for a
// command's request.
func (t *Draft) compose(a api.Declared, at Sandbox) (model.Desired, model.Attachment, error) {
	if a.Cgroup != "" || a.Unpublished != "" || a.HostInterface != "" {
		return model.Desired{}, model.Attachment{}, fmt.Errorf(
			"attach %s: cgroups are for workloads of the host's own network: use `fairlead run`", a.Sandbox)
	}
	c, err := Compose(t.desired, attachRequest(a, t.origin), at)
	t.Notes = append(t.Notes, c.Notes...)
	return c.Desired, c.Attachment, err
}

// attachRequest returns the request to attach a declared attachment.
func attachRequest(a api.Declared, by model.Origin) api.AttachRequest {
	return api.AttachRequest{Endpoint: a.Endpoint, Device: a.Device, PKey: a.PKey, DHCP: a.DHCP, Keep: true, Origin: by}
}

// unlessOther returns next, or the unchanged draft if the attachment stays one of another
// origin.
func (t *Draft) unlessOther(next model.Desired, a model.Attachment) (model.Desired, error) {
	have, known := t.before.Attachment(a.Name) // an edit may have moved it to another network
	switch {
	case known && t.unedited(have.Origin, edited(t.spec.Edit).attachment, a.Name):
		return next, notInFile("attachment " + a.Name)
	case known && t.spec.Edit != nil && have.Origin == t.origin:
		a.Keep = have.Keep || a.Sandbox == ""
		return next.WithAttachment(a), nil
	case !known || have.Origin == t.origin:
		return next, nil
	case !have.Equal(ownedAttachment(a, have)) && !t.takes(have.Origin):
		return next, DiffersFromFile("attachment "+a.Name, have.Origin, "`fairlead detach "+a.Name+"`")
	case !t.adopts(have.Origin):
		t.noteUnchanged("attachment", a.Name, have.Origin)
		return t.desired, nil
	}
	return next, nil
}

// publishes sets the publishes of an attachment in the draft.
func (t *Draft) publishes(i int, at string) {
	w, name := &t.desired, t.Names[i]
	var set, adopted []model.Publish
	others := slices.DeleteFunc(w.PublishesOf(name), func(p model.Publish) bool { return p.Origin == t.origin })
	for j, p := range t.spec.Attachments[i].Publishes {
		p.Endpoint, p.Origin = name, t.origin
		at := fmt.Sprintf("%s.publishes[%d]", at, j)
		if k := slices.IndexFunc(others, p.Same); k >= 0 {
			if !t.adoptsPublish(at, p, others[k]) {
				continue
			}
			adopted = append(adopted, p)
		}
		if k := slices.IndexFunc(set, p.Same); k >= 0 {
			t.mistake(at, fmt.Errorf("%s is published twice: remove one", set[k]))
			continue
		}
		set = append(set, p)
		t.Declared.Publishes = append(t.Declared.Publishes, p.String())
	}
	*w = w.ReplacePublishes(name, Among(adopted), adopted).SetPublishes(name, t.origin, set)
}

// adoptsPublish reports whether a declared publish replaces the one of another origin that has its
// host side.
func (t *Draft) adoptsPublish(at string, p, have model.Publish) bool {
	switch equal := have.Equal(ownedPublish(p, have)); {
	case !equal && !t.takes(have.Origin):
		t.mistake(at, DiffersFromFile("publish "+have.String(), have.Origin, "`fairlead unpublish "+p.Endpoint+" …`"))
		return false
	case !t.adopts(have.Origin):
		t.noteUnchanged("publish", p.String(), have.Origin)
		return false
	}
	return true
}

// unchanged are the objects of another origin that are as declared.
type unchanged struct {
	by    model.Origin
	names []string
}

// noteUnchanged records that an object of another origin is as declared.
func (t *Draft) noteUnchanged(kind, name string, by model.Origin) {
	i := slices.IndexFunc(t.unchanged, func(u unchanged) bool { return u.by == by })
	if i < 0 {
		i, t.unchanged = len(t.unchanged), append(t.unchanged, unchanged{by: by})
	}
	t.unchanged[i].names = append(t.unchanged[i].names, kind+" "+name)
}

// noteUnchangedObjects adds one note per origin.
func (t *Draft) noteUnchangedObjects() {
	for _, u := range t.unchanged {
		owner, object := createdBy(u.by), "it"
		if len(u.names) > 1 {
			owner, object = createdAllBy(u.by), "them"
		}
		t.Notes = append(t.Notes, fmt.Sprintf("already as declared: %s (%s, and files will not remove %s)",
			strings.Join(u.names, ", "), owner, object))
	}
}

// adopts reports whether a declared object of this origin becomes the set's if it is as declared.
func (t *Draft) adopts(by model.Origin) bool { return by == model.FromCommand && t.origin.IsFile() }

// takes reports whether a declared object of this origin becomes the set's although it differs.
func (t *Draft) takes(by model.Origin) bool { return t.spec.Adopt && t.adopts(by) }

// declaredBefore reports whether the Spec removes the object if it does not declare it: an earlier one
// of the set has declared it, or a user has edited it.
func (t *Draft) declaredBefore(by model.Origin, edited func(name string) bool, name string) bool {
	return by == t.origin && (t.spec.Edit == nil || edited(name))
}

// unedited reports whether a declared object is one of commands that the edited file did not have: a command has created
// it since, or the file cannot have it.
func (t *Draft) unedited(by model.Origin, edited func(name string) bool, name string) bool {
	return t.spec.Edit != nil && by == t.origin && !edited(name)
}
