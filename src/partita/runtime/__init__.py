"""What an operating system makes necessary: files, memory, time, processes, compiled code. It knows
nothing of models.
"""
