// Package agent lets a laboratory use another machine: Agent listens there and builds
// parts of paths for one laboratory at a time, and Remote is that machine for the
// laboratory. It chooses nothing that is measured, and contains no load generator.
//
// # Theory of operation
//
//	laboratory                         agent                       child
//	  Remote ── TLS 1.3 over TCP ──── session ── socketpair ─── load generator
//	     └─ one stream per call ─────────┘
//	     └─ one stream per generator, passed on byte by byte ──────┘
//
// An agent has a certificate of its own, made when it starts. Its token contains the
// certificate's fingerprint and a secret: the laboratory knows with whom it talks, and
// the agent knows that the laboratory has the token. A token is valid for one
// laboratory; then the agent issues another one.
//
// A laboratory's first bytes are a preface, which only the token's owner can make. A
// connection without it ends after prefaceLimit, or earlier: if there are maxWaiting,
// the host that has most loses its oldest one. Wrong tokens have no effect; a secret of
// 128 bits cannot be guessed. So hosts without the token cannot keep a laboratory out.
//
// After the greeting the connection carries streams (smux). A call is one stream with
// one request and one reply. A stream for the load generator has a request too, and
// then the generator's own messages.
//
// A laboratory that has the token can do what package machine can: build parts of the
// paths that this version knows, at most maxParts of them, in new network namespaces,
// and a web site behind a part, which it visits by schedules of limited length.
// Their only way out is a macvlan on the exposed link, whose neighbours are fixed to
// the other part. It can start no program of its own, choose no link, and reach no
// other machine.
//
// Everything ends with the connection. The kernel closes it when either process ends,
// and when the other machine has not answered for linkTimeout (TCP_USER_TIMEOUT and
// keepalive). Children die with the agent (PR_SET_PDEATHSIG) and namespaces with their
// last process. A cgroup is all that a killed agent leaves; the sweeper, a process that
// waits for the agent's end, removes it.
package agent
