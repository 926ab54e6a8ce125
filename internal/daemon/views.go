package daemon

import (
	"context"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/model"
)

// Empty reports whether the daemon has nothing to do: there is no attachment, no
// publish, no virtual service, no gateway, and no network of Docker, which may need the daemon at
// any time.
func (d *Daemon) Empty() bool {
	d.state.Lock()
	defer d.state.Unlock()
	w := d.state.Desired()
	return len(w.Attachments) == 0 && len(w.Services) == 0 && w.Gateway == nil &&
		!slices.ContainsFunc(w.Networks, func(n model.Network) bool { return n.Origin == model.FromDocker })
}

// Counts returns the numbers of desired attachments and publishes.
func (d *Daemon) Counts() (attachments, publishes int) {
	d.state.Lock()
	defer d.state.Unlock()
	return len(d.state.Desired().Attachments), len(d.state.Desired().Publishes)
}

// State returns the objects that commands and files have created, as stored.Spec does.
func (d *Daemon) State() (api.Spec, []string) {
	d.state.Lock()
	defer d.state.Unlock()
	return stored.Spec(d.state.Desired().Clone())
}

// Editable returns the objects that commands have created, as State does.
func (d *Daemon) Editable() (api.Spec, []string) {
	d.state.Lock()
	defer d.state.Unlock()
	return stored.Editable(d.state.Desired().Clone())
}

// Events returns the last events, oldest first.
func (d *Daemon) Events() []api.Event {
	return d.state.Events()
}

// FollowEvents returns a channel with the last events and all later ones. The channel
// is closed when ctx or the daemon ends, or when the reader is too far
// behind.
func (d *Daemon) FollowEvents(ctx context.Context) <-chan api.Event {
	return d.state.FollowEvents(ctx, d.state.Life)
}

// Changes returns a counter that grows when the state of the daemon may have changed.
func (d *Daemon) Changes() uint64 { return d.state.Changes() }

// Note logs an event of another part of the process and adds it to the journal. It sets
// the event's time.
func (d *Daemon) Note(e api.Event) { d.state.Note(e) }

// Attachments returns all attachments, sorted by name.
func (d *Daemon) Attachments() []api.View { return d.views() }

// views returns the attachments with these names, or all if there are none.
func (d *Daemon) views(names ...string) []api.View {
	d.state.Lock()
	defer d.state.Unlock()
	return d.view(names...)
}

// view is views for callers that have locked the mutex.
func (d *Daemon) view(names ...string) []api.View {
	return stored.Applied(d.state.Desired(), d.state.Applied(), d.state.Problems, d.leases.Problem, names...)
}

// CheckNetwork sends test datagrams to the other hosts of an overlay, and reports the
// problems of the path to each. Returns a Fault with code NotFound if there is no such
// network, and with another code if the network has no paths to check.
func (d *Daemon) CheckNetwork(ctx context.Context, name string) ([]api.PeerPathView, error) {
	return d.overlays.Check(ctx, name)
}

// Outbound returns what was chosen for networks with outbound auto and why, by name.
func (d *Daemon) Outbound() map[string]api.OutboundChoice {
	d.state.Lock()
	defer d.state.Unlock()
	all := map[string]api.OutboundChoice{}
	for name, c := range d.networks.Choices() {
		all[name] = c.View()
	}
	return all
}

// Unavailable returns why networks cannot exist on this host at present, by name. A network without attachments can be
// among them.
func (d *Daemon) Unavailable() map[string]string {
	d.state.Lock()
	defer d.state.Unlock()
	return d.networks.Unfit()
}
