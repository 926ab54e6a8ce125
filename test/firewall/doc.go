// Package firewall runs Fairlead on hosts that ufw and firewalld protect. It contains only tests.
package firewall
