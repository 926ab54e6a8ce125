package runner

import (
	"context"
	"errors"

	"fairlead/internal/lab/machine"
	"fairlead/internal/lab/result"
)

// between makes visits from the client's machine of a site on the server's, and sets
// what the run has measured.
func (v visiting) between(ctx context.Context, b *built, run *result.Run) (err error) {
	server, ok := b.server.(machine.Sites)
	client, known := b.client.(machine.Sites)
	if !ok || !known {
		return errors.New("one of the machines builds no web sites")
	}
	entry, err := server.OpenSite(ctx, v.Name)
	defer func() { err = errors.Join(err, server.CloseSite(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	before, err := server.CountSite(ctx)
	if err != nil {
		return err
	}
	window := b.window(result.Remote)
	if err = window.begin(ctx, result.Remote); err != nil {
		return err
	}
	t := &trip{visiting: v, path: b.Path, entry: entry, send: client.Visit}
	err = t.run(ctx)
	ended := window.end(ctx, false)
	after, failed := server.CountSite(ctx)
	if err = errors.Join(err, ended, failed); err != nil {
		return err
	}
	window.account(run)
	run.Seconds = run.Ledger.Wall
	for _, g := range window.gates {
		disturbed(run, g)
	}
	t.report(run, after.Since(before))
	return nil
}
