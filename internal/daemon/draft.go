package daemon

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// draft applies a Spec to a copy of the desired state, and finds all mistakes.
// Meanwhile Daemon.desired is the draft, so that names, interfaces and addresses are
// chosen as if the earlier parts of the Spec were already applied.
type draft struct {
	*Daemon
	origin model.Origin
	spec   api.Spec
	found  []located
	// names are the names of the declared attachments; empty for one with a mistake.
	names []string
	// taken are the running sandboxes of the attachments.
	taken    map[*watchedSandbox]sandbox.Sandbox
	notes    []string
	mistakes api.Mistakes
	// wrong are networks with mistakes. Their attachments are not checked.
	wrong map[string]bool
}

func (t *draft) mistake(at string, err error) {
	t.mistakes = append(t.mistakes, api.Mistake{At: at, Text: err.Error()})
}

// desired returns the desired state after the Spec is applied, or the mistakes.
func (t *draft) desired() (model.Desired, error) {
	before := t.Daemon.desired
	defer func() { t.Daemon.desired = before }()
	t.wrong = map[string]bool{}
	if err := model.ValidName(t.spec.Set); t.spec.Set != "" && err != nil {
		t.mistake("", fmt.Errorf("set: %w", err))
	}
	t.Daemon.desired = t.prune()
	for i := range t.spec.Networks {
		t.network(i)
	}
	t.pruneServices()
	for i := range t.spec.Services {
		t.service(i)
	}
	t.pruneNetworks()
	for i := range t.spec.Attachments {
		t.attachment(i)
	}
	next := t.Daemon.desired
	if len(t.mistakes) == 0 {
		if err := t.check(before, next); err != nil {
			return before, err
		}
	}
	if len(t.mistakes) > 0 {
		return before, &api.Fault{Code: api.Invalid, Err: t.mistakes}
	}
	return next, nil
}

// prune returns the desired state without the attachments that the set no longer
// declares.
func (t *draft) prune() model.Desired {
	gone, matched := map[string]bool{}, map[string]bool{}
	for i, a := range t.spec.Attachments {
		if have, ok := t.matches(a, t.found[i].Ref, matched); ok {
			matched[have] = true
		}
	}
	for _, a := range t.Daemon.desired.Attachments {
		gone[a.Name] = a.Origin == t.origin && !matched[a.Name]
	}
	return t.Daemon.desired.WithoutAttachments(gone)
}

// matches returns the existing attachment of a declared one: the one with the same
// name or, without a name, interface; and with the same sandbox and network.
func (t *draft) matches(a api.Declared, ref string, taken map[string]bool) (string, bool) {
	network := a.Network
	if a.Device != "" {
		network = deviceNetwork(a.Device, a.PKey)
	}
	for _, have := range t.Daemon.desired.Attachments {
		named := a.Name == have.Name || a.Name == "" && (a.Interface == "" || a.Interface == have.Interface)
		if named && have.Ref == ref && have.Network == network && !taken[have.Name] {
			return have.Name, true
		}
	}
	return "", false
}

// network adds one network to the draft.
func (t *draft) network(i int) {
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

func (t *draft) tryNetwork(n model.Network) error {
	if n.Traits().NoLink {
		return fmt.Errorf("network %s: driver %s attaches no sandboxes: choose another", n.Name, n.Driver)
	}
	if err := (model.State{Networks: []model.Network{n}}).Validate(); err != nil {
		return err
	}
	if err := t.checkOverlap(n); err != nil {
		return err
	}
	w := &t.Daemon.desired
	w.Networks = slices.Clone(w.Networks)
	j := slices.IndexFunc(w.Networks, func(o model.Network) bool { return o.Name == n.Name })
	if j < 0 {
		w.Networks = append(w.Networks, n)
		return nil
	}
	have := w.Networks[j]
	switch {
	case have.Origin != t.origin:
		if n.Origin = have.Origin; have.Equal(n) {
			t.noteUnchanged("network", n.Name, have.Origin)
			return nil
		}
		return differsFromFile("network "+n.Name, have.Origin, "`fairlead network rm "+n.Name+"`")
	case have.Driver != n.Driver:
		return fmt.Errorf(
			"network %s already exists with driver %s: apply the files without it first, or give the new network another name", n.Name, have.Driver)
	}
	w.Networks[j] = n
	return nil
}

// noteUnchanged notes that an object of another origin is as declared.
func (t *draft) noteUnchanged(kind, name string, by model.Origin) {
	t.notes = append(t.notes, fmt.Sprintf(
		"%s %s is as declared, and the files do not take it over: %s", kind, name, createdBy(by)))
}

// pruneNetworks removes the networks that the set no longer declares.
func (t *draft) pruneNetworks() {
	w := &t.Daemon.desired
	left := func(n model.Network) bool {
		return n.Origin == t.origin && !slices.ContainsFunc(t.spec.Networks, func(o model.Network) bool { return o.Name == n.Name })
	}
	for _, n := range w.Networks {
		var users []string
		for _, a := range w.Attachments {
			if left(n) && a.Network == n.Name && a.Origin != t.origin {
				users = append(users, a.Name)
			}
		}
		if len(users) > 0 {
			t.mistake("", fmt.Errorf(
				"network %s is no longer declared, but has attachments of another origin (%s): detach them first, or declare it", n.Name, strings.Join(users, ", ")))
		}
	}
	w.Networks = slices.DeleteFunc(slices.Clone(w.Networks), left)
}

// attachment adds one attachment and its publishes to the draft.
func (t *draft) attachment(i int) {
	a, at := t.spec.Attachments[i], fmt.Sprintf("attachments[%d]", i)
	if t.found[i].err != nil {
		t.mistake(at, t.found[i].err)
		return
	}
	if t.wrong[a.Network] {
		return
	}
	next, made, err := t.compose(a, t.found[i].Sandbox)
	if err == nil && slices.Contains(t.names, made.Name) {
		err = fmt.Errorf("attachment %s is declared twice: remove one, or give each a name and an interface", made.Name)
	}
	if err == nil {
		next, err = t.unlessOther(next, made)
	}
	if err != nil {
		t.mistake(at, err)
		return
	}
	t.names[i], t.Daemon.desired = made.Name, next
	delete(t.problems, made.Name)
	t.publishes(i, at)
}

// compose fills in the values that a declared attachment leaves empty, as for a
// command's request.
func (t *draft) compose(a api.Declared, at sandbox.Sandbox) (model.Desired, model.Attachment, error) {
	if a.Cgroup != "" || a.Unpublished != "" || a.HostInterface != "" {
		return model.Desired{}, model.Attachment{}, fmt.Errorf("attach %s: cgroups are for workloads of the host's own network: use `fairlead run`", a.Sandbox)
	}
	b, seen := &watchedSandbox{ref: at.Ref}, kernel.Sandbox{}
	if at.Path != "" {
		alive, inspected, err := t.inspectSandbox(at)
		if err == nil {
			b, seen, t.taken[alive] = alive, inspected, at
		}
	}
	next, made, notes, err := t.Daemon.compose(attachRequest(a, t.origin), at, b, seen)
	t.notes = append(t.notes, notes...)
	return next.Desired, made, err
}

// attachRequest returns the request to attach a declared attachment.
func attachRequest(a api.Declared, by model.Origin) api.AttachRequest {
	return api.AttachRequest{Endpoint: a.Endpoint, Device: a.Device, PKey: a.PKey, DHCP: a.DHCP, Keep: true, Origin: by}
}

// unlessOther returns next, or the unchanged draft if the attachment is of another
// origin and as declared.
func (t *draft) unlessOther(next model.Desired, a model.Attachment) (model.Desired, error) {
	have, known := t.Daemon.desired.Attachment(a.Name)
	if !known || have.Origin == t.origin {
		return next, nil
	}
	same := a
	same.Origin, same.Keep = have.Origin, have.Keep
	if !have.Equal(same) {
		return next, differsFromFile("attachment "+a.Name, have.Origin, "`fairlead detach "+a.Name+"`")
	}
	t.noteUnchanged("attachment", a.Name, have.Origin)
	return t.Daemon.desired, nil
}

// publishes sets the publishes of an attachment in the draft.
func (t *draft) publishes(i int, at string) {
	w, name := &t.Daemon.desired, t.names[i]
	var set []model.Publish
	others := slices.DeleteFunc(w.PublishesOf(name), func(p model.Publish) bool { return p.Origin == t.origin })
	for j, p := range t.spec.Attachments[i].Publishes {
		p.Endpoint, p.Origin = name, t.origin
		at := fmt.Sprintf("%s.publishes[%d]", at, j)
		if k := slices.IndexFunc(others, p.Same); k >= 0 {
			t.otherPublish(at, p, others[k])
			continue
		}
		if k := slices.IndexFunc(set, p.Same); k >= 0 {
			t.mistake(at, fmt.Errorf("%s is published twice: remove one", set[k]))
			continue
		}
		set = append(set, p)
		delete(t.problems, p.String())
	}
	*w = w.SetPublishes(name, t.origin, set)
}

// otherPublish compares a declared publish with the one of another origin that has its
// host side.
func (t *draft) otherPublish(at string, p, have model.Publish) {
	if p.Origin = have.Origin; have.Equal(p) {
		t.noteUnchanged("publish", p.String(), have.Origin)
		return
	}
	t.mistake(at, differsFromFile("publish "+have.String(), have.Origin, "`fairlead unpublish "+p.Endpoint+" …`"))
}
