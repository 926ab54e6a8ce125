// Package metric has the gateway's metrics for Prometheus, under the names and with the labels of
// Traefik's. It does not decide which requests are counted, and serves no request itself.
//
// Theory of operation. A request finds its counters without a lock and without an allocation. Each
// router at an entry point has a Source: lists of the counters for each class of requests (method,
// status …) that the router has had. Only the first request of a class takes the lock, and gets the
// counters of the entry point, of the router and of the service.
//
// Configure removes the metrics of routers and services that are not in the configuration. Requests
// to them that are in progress count for their entry point only.
package metric
