// Package serving runs the gateway's serving process: the unprivileged process that has
// the connections of clients. The process that imports the package (the controlling
// process) reads providers and files, opens sockets, and sends the serving process what
// it needs. The package reads no provider and obtains no certificate.
//
// # Theory of operation
//
//	controlling process                      serving process
//	   │── start: static, sockets, first configuration ──▶│ accepts
//	   │── apply: what has changed ──────────────────────▶│ replaces its snapshot
//	   │◀─ statuses ──────────────────────────────────────│
//
// The two exchange frames over a unix socket: four bytes with the length, and a JSON
// object. Descriptors (listening sockets, the file of the access log) come with the frame
// (SCM_RIGHTS). The listening sockets exist in both processes. So the queue of clients
// that are not accepted yet outlives either of them, and a serving process that is
// killed is replaced by another that goes on with the same queue.
//
// The serving process has a user id of its own if the controlling process is root, and
// no capability, cannot get any (no_new_privs), and can be traced by root only. It gets
// certificates and other files as contents, so it needs no file.
//
// # Replacement
//
// Replace starts another serving process, with the program of the caller. It gets the
// same sockets, the keys of TLS session tickets and the servers that are down, and
// accepts; only then the earlier process leaves: it accepts no more, and completes what
// it has (gateway.Leave).
//
// # A process that survives the controlling process
//
// If Options.Directory is set, the serving process has a session of its own and listens on a
// unix socket in this directory, which only root may enter. It serves with its last
// configuration while there is no controlling process. The next one calls Start as the
// first one did, as soon as it knows its whole configuration. Start finds the running
// process, verifies by SO_PEERCRED and SCM_CREDENTIALS who is at the other end, and
// applies the configuration. If the running process has another program file or other
// static settings, Start replaces it. If several are found, because a controlling
// process died while it replaced one, the newest stays and the others leave.
//
//	c, statuses, err := serving.Start(ctx, serving.Options{Directory: "/run/fairlead", Log: log}, static, config, known)
//	…
//	statuses, err = c.Apply(config, known) // at each change
//	statuses, err = c.Replace(ctx, static)      // other entry points, or other static settings
//	c.Part()                                    // the daemon ends, the gateway goes on
//	c.Stop(ctx)                                 // the gateway ends
//	serving.End(ctx, options)                   // ends what an earlier controlling process has left
//
// Without Options.Directory, the kernel kills the serving processes when the controlling
// process ends for any reason.
package serving
