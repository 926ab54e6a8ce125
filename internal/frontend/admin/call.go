package admin

import (
	"context"
	"net/http"

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

// paramWrong asks a list for what is wrong only. Daemons that do not know it return the whole list.
const paramWrong = "wrong"

// DoWrong asks for the part of the answer that needs attention. An older daemon returns the whole answer.
func (p Query[Answer]) DoWrong(ctx context.Context, c *Client) (a Answer, err error) {
	err = c.call(ctx, http.MethodGet, string(p)+"?"+paramWrong, nil, &a)
	return a, err
}

// handleWrong registers the function that answers Do, and the one that answers DoWrong.
func (p Query[Answer]) handleWrong(mux *http.ServeMux, all, wrong func(context.Context) Answer) {
	mux.HandleFunc("GET "+string(p), func(w http.ResponseWriter, r *http.Request) {
		of := all
		if r.URL.Query().Has(paramWrong) {
			of = wrong
		}
		answer(w, http.StatusOK, of(r.Context()))
	})
}

func reply(w http.ResponseWriter, v any, err error) {
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, v)
}
