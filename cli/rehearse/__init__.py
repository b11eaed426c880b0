"""`multislice rehearse`: would the Kueue of any cluster admit a JobSet now?"""
