package dashboard

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"fairlead/internal/api"
	"fairlead/internal/frontend/admin"
)

// maxForm is the maximum size in bytes of the form of an action.
const maxForm = 16 << 10

// act does what the button of a form says, and shows the page with it again.
func (d *Dashboard) act(w http.ResponseWriter, r *http.Request) {
	if !d.opt.Actions || d.opt.Daemon == nil {
		http.Error(w, "Actions are not enabled: use the command, or start the dashboard with the flag for actions.",
			http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	token := r.PostFormValue("token")
	if subtle.ConstantTimeCompare([]byte(token), []byte(d.site.Token)) != 1 {
		http.Error(w, "The form is of another process: reload the page and try again.", http.StatusForbidden)
		return
	}
	back, what, err := d.do(r.Context(), r)
	log := d.opt.Log.With("action", what, "by", d.opt.Who(r))
	if err != nil {
		log.Warn("the dashboard's action failed", "error", err)
		http.Error(w, what+": "+err.Error(), http.StatusConflict)
		return
	}
	log.Info("the dashboard acts")
	http.Redirect(w, r, d.opt.Base+back, http.StatusSeeOther)
}

// do executes an action. It returns the page to show then, and what it did in the words of the command line.
func (d *Dashboard) do(ctx context.Context, r *http.Request) (back, what string, err error) {
	switch do := r.PostFormValue("do"); do {
	case string(api.DrainReal), string(api.EnableReal):
		q := api.RealRequest{Service: r.PostFormValue("service"), Real: r.PostFormValue("real"), Do: api.RealAction(do)}
		_, err = admin.ChangeReal.Do(ctx, d.opt.Daemon, q)
		d.site.Sources.Services.Expire()
		d.site.Sources.FirstServices.Expire()
		d.site.Sources.WrongServices.Expire()
		d.site.Sources.Events.Expire()
		return "/services", fmt.Sprintf("%s %s of service %s", do, q.Real, q.Service), err
	case "move":
		q := api.ClusterAddressRequest{Node: r.PostFormValue("node")}
		what = "move address " + r.PostFormValue("address")
		if q.Address, err = netip.ParseAddr(r.PostFormValue("address")); err != nil {
			return "", what, err
		}
		_, err = admin.MoveAddress.Do(ctx, d.opt.Daemon, q)
		d.site.Sources.Cluster.Expire()
		return "/cluster", what, err
	default:
		return "", "act", errors.New("the form names no action")
	}
}
