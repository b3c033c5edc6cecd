"""Encoders on a device, and what their runs leave there until it joins the batch."""
