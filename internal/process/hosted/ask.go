package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"fairlead/internal/api"
	"fairlead/internal/gateway/view"
)

// Ask implements admin.GatewayCalls: it answers the paths of the gateway's API that commands
// read, as the serving process does at an entry point.
func (r *Runner) Ask(ctx context.Context, path string) (json.RawMessage, error) {
	c, err := r.running()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(path)
	if err != nil {
		return nil, &api.Fault{Code: api.Invalid, Err: err}
	}
	var answer any
	switch u.Path {
	case "/api/rawdata":
		objects := c.Objects
		if u.Query().Has(view.ParamWrong) {
			objects = c.Wrong
		}
		answer, err = objects(ctx)
	case "/api/explain":
		q := u.Query()
		answer, err = c.Explain(ctx, q.Get("entryPoint"), cmp.Or(q.Get("method"), http.MethodGet), q.Get("url"))
		if err != nil {
			err = &api.Fault{Code: api.Invalid, Err: err}
		}
	default:
		err = api.Faultf(api.NotFound, "GET %s: this daemon does not support the request", path)
	}
	if err != nil {
		return nil, fmt.Errorf("ask the gateway: %w", err)
	}
	return json.Marshal(answer)
}
