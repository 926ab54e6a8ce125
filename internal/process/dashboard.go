package process

import (
	"context"
	"errors"
	"net"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/frontend/dashboard/access"
	"fairlead/internal/frontend/dashboard/chart"
	"fairlead/internal/frontend/examine"
)

// Dashboard says where the daemon serves its dashboard.
type Dashboard struct {
	access.Options
	// Actions adds buttons that change something.
	Actions bool
}

// Check returns an error if the options do not keep strangers out, or have no effect.
func (d Dashboard) Check() error {
	if d.Actions && d.Address == "" {
		return errors.New("enable the dashboard's actions: no dashboard is served: give --dashboard")
	}
	return d.Options.Check()
}

// window serves the dashboard.
type window struct {
	// at is nil if it is not served.
	at *access.Listener
}

// newWindow listens if opt.Dashboard has an address. It does not serve yet.
func newWindow(opt Options) (w window, err error) {
	if opt.Dashboard.Address != "" {
		w.at, err = access.Listen(opt.Dashboard.Options)
	}
	return w, err
}

// show serves the dashboard until stop is called. It asks the daemon at its socket, as commands do, so that no
// request waits for the daemon's mutex here.
func (w window) show(opt Options, pins string, note func(api.Event)) (stop func() error) {
	if w.at == nil {
		return func() error { return nil }
	}
	w.at.OnKept(func(err error) {
		note(api.Event{Kind: api.Unhealed, Object: "certificate of the dashboard",
			Detail: err.Error() + ": the earlier certificate is used: correct the files of --dashboard-cert and " +
				"--dashboard-key"})
	})
	client := admin.NewClient(opt.Socket)
	d := dashboard.New(dashboard.Options{Daemon: client, Host: examine.Examiner{Daemon: client, Pins: pins},
		Charts: chart.Live(client.History), Actions: opt.Dashboard.Actions, Who: access.Who, Version: opt.Version,
		Log: opt.Log})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.at.Serve(ctx, d) }()
	opt.Log.Info("serve the dashboard", "address", opt.Dashboard.Address, "actions", opt.Dashboard.Actions)
	return func() error {
		cancel()
		return <-ended
	}
}

// close closes the listener.
func (w window) close() error {
	if w.at == nil {
		return nil
	}
	if err := w.at.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
