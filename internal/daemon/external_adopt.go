package daemon

import (
	"fmt"
	"slices"

	"fairlead/internal/kernel"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
)

// An engine that has taken the end of a guest's link does not do it again when
// somebody deletes the link. So the guest is adopted then: it becomes an
// attachment like any other, whose link, addresses and routes in the sandbox we
// make and hold, until its engine has it leave. What the interface was called
// there nobody can tell any more: it gets the first name that is free.

// adoptExternals adopts the guests whose links are among the objects and gone,
// and reports whether there are any. Of a sandbox's, the one that publishes
// goes first: it has the default route.
func (d *Daemon) adoptExternals(part plan.Plan) bool {
	lost := d.withoutEngine(part)
	publishes := map[string]int{}
	for _, p := range d.desired.Publishes {
		publishes[p.Endpoint]++
	}
	slices.SortStableFunc(lost, func(a, b model.Attachment) int { return publishes[b.Name] - publishes[a.Name] })
	adopted := false
	for _, a := range lost {
		b, seen, err := d.know(sandbox.Sandbox{Ref: a.Ref, Path: a.Sandbox})
		if err != nil {
			continue // the link is not taken yet, or its sandbox has gone with it
		}
		adopted = true
		d.warn("adopt "+a.Name, d.adoptExternal(a, b, seen))
	}
	return adopted
}

// withoutEngine returns the guests whose links are among the objects and gone.
func (d *Daemon) withoutEngine(part plan.Plan) (lost []model.Attachment) {
	for _, o := range part {
		link, ok := o.(plan.Link)
		if !ok || !link.Inside {
			continue
		}
		a, known := d.attachment(link.Owner)
		found, err := d.cfg.Host.Links([]string{link.Name})
		if known && a.HostInterface != "" && err == nil && len(found) == 0 {
			lost = append(lost, a)
		}
	}
	return lost
}

func (d *Daemon) adoptExternal(a model.Attachment, b *watchedSandbox, seen kernel.Sandbox) error {
	n, _ := model.State{Networks: d.desired.Networks}.Network(a.Network)
	a.HostInterface, a.Namespace, a.Interface = "", b.namespace, d.freeInterface(a.Ref, seen)
	var notes []string
	if err := d.defaultRoute(&a, n, a, false, seen, &notes); err != nil {
		return err
	}
	d.hold(b, sandbox.Sandbox{Ref: a.Ref, Path: b.path})
	if err := d.settle(with(d.desired, a)); err != nil {
		return err
	}
	d.note(Event{Kind: Healed, Object: "attachment " + a.Name, Detail: fmt.Sprintf("its link was deleted: made anew in %s as %s", a.Sandbox, a.Interface)})
	return nil
}
