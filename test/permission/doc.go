// Package permission tests that what a host gets from a cluster's records and from labels of containers cannot make
// the host execute, read or write by a path. It fills each field, found by reflection, with the path of a file of
// its own, and asks the kernel (inotify) which of these files were opened. It does not test what an administrator's
// own files allow.
package permission
