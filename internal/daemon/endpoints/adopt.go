package endpoints

import (
	"fmt"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/sockets"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/daemon/watched"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/model"
	"fairlead/internal/plan"
	"fairlead/internal/sandbox"
)

// An engine moves the link of an external endpoint into the sandbox once. If the
// link is deleted later, the engine does not do that again, so the daemon adopts the
// endpoint: the attachment becomes a normal one, and the daemon creates and repairs
// its link, addresses and routes in the sandbox until the engine calls Leave. The
// earlier name of the interface is unknown: it gets the first free name.

// AdoptLost adopts the external endpoints whose links are among the objects and
// no longer exist, and reports whether there were any. It starts with the endpoint of
// a sandbox that has the most publishes, because that one must get the default route.
// Returns an engine.UnopenedError if one still waits for its ports; it logs other errors. The
// mutex of the state must be locked. AdoptLost is no method, so that it is none of the daemon.
func AdoptLost(x *Endpoints, part plan.Plan) (adopted bool, waits error) {
	lost := x.lost(part)
	publishes := map[string]int{}
	for _, p := range x.state.Desired().Publishes {
		publishes[p.Endpoint]++
	}
	slices.SortStableFunc(lost, func(a, b model.Attachment) int { return publishes[b.Name] - publishes[a.Name] })
	for _, a := range lost {
		b, seen, err := x.cfg.Sandboxes.Inspect(sandbox.Sandbox{Ref: a.Ref, Path: a.Sandbox})
		if err != nil {
			continue // the engine has not moved the link yet, or the sandbox has ended
		}
		adopted = true
		if err := x.adopt(a, b, seen); sockets.AreUnopened(err) {
			waits = err
		} else {
			x.state.Warn("adopt "+a.Name, err)
		}
	}
	return adopted, waits
}

// lost returns the external endpoints whose links are among the objects and
// no longer exist.
func (x *Endpoints) lost(part plan.Plan) (lost []model.Attachment) {
	for _, o := range part {
		link, ok := o.(plan.Link)
		if !ok || !link.Inside {
			continue
		}
		a, known := x.state.Desired().Attachment(link.Owner)
		found, err := x.cfg.Kernel.Net().Links([]string{link.Name})
		if known && a.HostInterface != "" && err == nil && len(found) == 0 {
			lost = append(lost, a)
		}
	}
	return lost
}

func (x *Endpoints) adopt(a model.Attachment, b *watched.Sandbox, seen inspect.Sandbox) error {
	at := sandbox.Sandbox{Ref: a.Ref, Path: b.Path}
	if err := spec.Readopt(x.state.Desired(), &a, watched.ContentsOf(at, seen)); err != nil {
		return err
	}
	x.cfg.Sandboxes.Watch(b, at)
	if err := x.cfg.Applier.Settle(x.state.Desired().WithAttachment(a)); err != nil {
		return err
	}
	x.state.Note(api.Event{Kind: api.Healed, Object: "attachment " + a.Name, Detail: fmt.Sprintf(
		"its link was deleted: created again in %s as %s", a.Sandbox, a.Interface)})
	return nil
}
