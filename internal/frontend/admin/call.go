package admin

import (
	"context"
	"net/http"
	"net/url"

	"fairlead/internal/api"
)

// Call is the path of a request of the API, with the types of the request and of the answer. The server and its clients
// use the same value. The errors of Do are those of Client.
type Call[Request, Answer any] string

// Do sends the request.
func (p Call[Request, Answer]) Do(ctx context.Context, c *Client, r Request) (a Answer, err error) {
	err = c.call(ctx, http.MethodPost, string(p), r, &a)
	return a, err
}

// handle registers the function that answers the request.
func (p Call[Request, Answer]) handle(mux *http.ServeMux, fn func(context.Context, Request) (Answer, error)) {
	post(mux, string(p), fn)
}

// handleChange registers the function of a change whose result has no details.
func handleChange[Request any](mux *http.ServeMux, p Call[Request, api.Result],
	fn func(context.Context, Request) error) {
	p.handle(mux, func(ctx context.Context, r Request) (api.Result, error) {
		err := fn(ctx, r)
		return api.Result{Changed: err == nil}, err
	})
}

// Query is the path of a request that changes nothing and has no parameters, with the type of the answer.
type Query[Answer any] string

// Do sends the request.
func (p Query[Answer]) Do(ctx context.Context, c *Client) (a Answer, err error) {
	err = c.call(ctx, http.MethodGet, string(p), nil, &a)
	return a, err
}

// handle registers the function that answers the request.
func (p Query[Answer]) handle(mux *http.ServeMux, fn func() (Answer, error)) {
	mux.HandleFunc("GET "+string(p), func(w http.ResponseWriter, _ *http.Request) {
		a, err := fn()
		reply(w, a, err)
	})
}

// These parameters ask for a part of a list. Daemons that do not know them return the whole list.
const (
	// paramWrong asks for what needs attention.
	paramWrong = "wrong"
	// paramFirst asks for what the first page of a table shows; its value is the number of rows.
	paramFirst = "first"
)

// DoPart asks for a part of the answer by a parameter, NAME or NAME=VALUE.
func (p Query[Answer]) DoPart(ctx context.Context, c *Client, parameter string) (a Answer, err error) {
	err = c.call(ctx, http.MethodGet, string(p)+"?"+parameter, nil, &a)
	return a, err
}

// handleParts registers the function that answers Do and DoPart. It gets the parameters.
func (p Query[Answer]) handleParts(mux *http.ServeMux, fn func(context.Context, url.Values) Answer) {
	mux.HandleFunc("GET "+string(p), func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusOK, fn(r.Context(), r.URL.Query()))
	})
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, v)
}
