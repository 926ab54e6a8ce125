// Package overssh starts an agent on another machine with the user's ssh client, and
// nothing but ssh, a shell and coreutils there. It does not carry the laboratory's
// connection, which goes to the agent directly.
//
// # Theory of operation
//
//	laboratory ── pipe ── ssh ── network ── sshd ── pipe ── sh, then the agent
//
// The remote command is always the same text. What differs is sent to its standard
// input: a line with the size of this binary and the link, then the binary. So no shell
// reads a word of the user's.
//
// The shell opens a temporary file, deletes it, fills it, and executes it as
// /proc/self/fd/4. So the copy has no name while it exists, and the kernel frees it with
// the last process, however that ends. The agent prints its address and token to
// standard output, and ends when its standard input does: at the end of the laboratory,
// of ssh or of sshd, also by SIGKILL. If the network is lost, its connection with the
// laboratory ends after linkTimeout, or none was made within onceLimit (package agent);
// a copy that makes no progress ends after copyLimit.
package overssh
