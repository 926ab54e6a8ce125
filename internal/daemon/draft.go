package daemon

import (
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// draft turns a Spec into wishes, and finds every mistake on the way. While it
// is made, the wishes so far are the daemon's, so that names, interfaces and
// addresses are chosen as if what is ahead were there already.
type draft struct {
	*Daemon
	by    model.Origin
	spec  Spec
	found []located
	// names are those of the declared attachments, empty where one is wrong.
	names []string
	// taken are the living sandboxes of the attachments.
	taken    map[*watchedSandbox]sandbox.Sandbox
	notes    []string
	mistakes Mistakes
	// wrong are networks with mistakes, of which attachments say no more.
	wrong map[string]bool
}

func (t *draft) mistake(at string, err error) {
	t.mistakes = append(t.mistakes, Mistake{at, err.Error()})
}

// desired returns what shall be wished when the Spec is applied.
func (t *draft) desired() (model.Desired, error) {
	before := t.Daemon.desired
	defer func() { t.Daemon.desired = before }()
	t.wrong = map[string]bool{}
	if err := model.ValidName(t.spec.Set); t.spec.Set != "" && err != nil {
		t.mistake("", fmt.Errorf("set: %w", err))
	}
	t.Daemon.desired = t.pruned()
	for i := range t.spec.Networks {
		t.network(i)
	}
	t.prunedServices()
	for i := range t.spec.Services {
		t.service(i)
	}
	t.deserted()
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
		return before, &Fault{Invalid, t.mistakes}
	}
	return next, nil
}

// pruned returns the wishes without the attachments that the set declares no
// more.
func (t *draft) pruned() model.Desired {
	gone, matched := map[string]bool{}, map[string]bool{}
	for i, a := range t.spec.Attachments {
		if have, ok := t.matches(a, t.found[i].Ref, matched); ok {
			matched[have] = true
		}
	}
	for _, a := range t.Daemon.desired.Attachments {
		gone[a.Name] = a.Origin == t.by && !matched[a.Name]
	}
	return t.less(gone)
}

// matches returns the attachment that a declared one is already: the one of
// its name, or else of its sandbox, network and interface.
func (t *draft) matches(a Declared, ref string, taken map[string]bool) (string, bool) {
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

// network brings one network into the wishes.
func (t *draft) network(i int) {
	n, at := t.spec.Networks[i], fmt.Sprintf("networks[%d]", i)
	n.Origin = t.by
	if slices.ContainsFunc(t.spec.Networks[:i], func(o model.Network) bool { return o.Name == n.Name }) {
		t.mistake(at, fmt.Errorf("network %s is declared twice: leave one out", n.Name))
		return
	}
	if err := t.tryNetwork(n); err != nil {
		t.wrong[n.Name] = true
		t.mistake(at, err)
	}
}

func (t *draft) tryNetwork(n model.Network) error {
	if n.Driver == model.DriverHost || n.Driver == model.DriverNone {
		return fmt.Errorf("network %s: driver %s attaches nothing: choose another", n.Name, n.Driver)
	}
	if err := (model.State{Networks: []model.Network{n}}).Validate(); err != nil {
		return err
	}
	if err := t.overlap(n); err != nil {
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
	case have.Origin != t.by:
		if n.Origin = have.Origin; have.Equal(n) {
			t.left("network", n.Name, have.Origin)
			return nil
		}
		return theirs("network "+n.Name, have.Origin, "`fairlead network rm "+n.Name+"`")
	case have.Driver != n.Driver:
		return fmt.Errorf("network %s is there with driver %s: apply without it first, or give the new one another name", n.Name, have.Driver)
	}
	w.Networks[j] = n
	return nil
}

// left notes that something is as declared, and somebody else's.
func (t *draft) left(kind, name string, by model.Origin) {
	t.notes = append(t.notes, fmt.Sprintf("%s %s is as declared, and stays what it is: %s", kind, name, made(by)))
}

// deserted takes away the networks that the set declares no more.
func (t *draft) deserted() {
	w := &t.Daemon.desired
	left := func(n model.Network) bool {
		return n.Origin == t.by && !slices.ContainsFunc(t.spec.Networks, func(o model.Network) bool { return o.Name == n.Name })
	}
	for _, n := range w.Networks {
		var users []string
		for _, a := range w.Attachments {
			if left(n) && a.Network == n.Name && a.Origin != t.by {
				users = append(users, a.Name)
			}
		}
		if len(users) > 0 {
			t.mistake("", fmt.Errorf("network %s is declared no more, but has attachments of others (%s): detach them first, or declare it", n.Name, strings.Join(users, ", ")))
		}
	}
	w.Networks = slices.DeleteFunc(slices.Clone(w.Networks), left)
}

// attachment brings one attachment and its publishes into the wishes.
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
		err = fmt.Errorf("attachment %s is declared twice: leave one out, or give each a name and an interface", made.Name)
	}
	if err == nil {
		next, err = t.mine(next, made)
	}
	if err != nil {
		t.mistake(at, err)
		return
	}
	t.names[i], t.Daemon.desired = made.Name, next
	delete(t.problems, made.Name)
	t.publishes(i, at)
}

// compose fills in what a declared attachment leaves open, as for one that is
// asked for by a command.
func (t *draft) compose(a Declared, at sandbox.Sandbox) (model.Desired, model.Attachment, error) {
	if a.Cgroup != "" || a.Unpublished != "" || a.HostInterface != "" {
		return model.Desired{}, model.Attachment{}, fmt.Errorf("attach %s: cgroups are for workloads of the host's own network: use `fairlead run`", a.Sandbox)
	}
	b, seen := &watchedSandbox{ref: at.Ref}, kernel.Sandbox{}
	if at.Path != "" {
		alive, inspected, err := t.know(at)
		if err == nil {
			b, seen, t.taken[alive] = alive, inspected, at
		}
	}
	next, made, notes, err := t.Daemon.compose(a.request(t.by), at, b, seen)
	t.notes = append(t.notes, notes...)
	return next.Desired, made, err
}

// mine returns the wishes as they are where the attachment is somebody else's
// and as declared.
func (t *draft) mine(next model.Desired, a model.Attachment) (model.Desired, error) {
	have, known := t.Daemon.attachment(a.Name)
	if !known || have.Origin == t.by {
		return next, nil
	}
	same := a
	same.Origin, same.Keep = have.Origin, have.Keep
	if !have.Equal(same) {
		return next, theirs("attachment "+a.Name, have.Origin, "`fairlead detach "+a.Name+"`")
	}
	t.left("attachment", a.Name, have.Origin)
	return t.Daemon.desired, nil
}

// publishes brings the publishes of an attachment into the wishes.
func (t *draft) publishes(i int, at string) {
	w, name := &t.Daemon.desired, t.names[i]
	w.Publishes = slices.DeleteFunc(slices.Clone(w.Publishes), func(p model.Publish) bool { return p.Endpoint == name && p.Origin == t.by })
	for j, p := range t.spec.Attachments[i].Publishes {
		p.Endpoint, p.Origin = name, t.by
		k := slices.IndexFunc(w.Publishes, func(o model.Publish) bool { return o.Endpoint == name && o.Same(p) })
		if k < 0 {
			w.Publishes = append(w.Publishes, p)
			delete(t.problems, p.String())
			continue
		}
		have := w.Publishes[k]
		switch p.Origin = have.Origin; {
		case have.Origin == t.by:
			t.mistake(fmt.Sprintf("%s.publishes[%d]", at, j), fmt.Errorf("%s is published twice: leave one out", have))
		case have.Equal(p):
			t.left("publish", p.String(), have.Origin)
		default:
			t.mistake(fmt.Sprintf("%s.publishes[%d]", at, j), theirs("publish "+have.String(), have.Origin, "`fairlead unpublish "+name+" …`"))
		}
	}
}
